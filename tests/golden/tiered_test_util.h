// Tiny models on an emulated GPU that holds some of their experts, and one text that goes through
// them: prompts, decoded tokens, and prompts again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "backend/split/split_device.h"
#include "engine/engine.h"
#include "tests/support/golden_families.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {

/// Where experts lie. Slots are counted in experts.
struct Tiers {
  uint64_t near_slots = 0;
  std::optional<uint64_t> far_slots;  // none: all; else the drive holds the others
  uint64_t ring_slots = 0;            // of prompts of eight tokens and more
  double margin = 2.0;                // 0: experts change places as often as they can
  LookaheadMode lookahead = LookaheadMode::kOff;
};

/// Tokens that come together, or one by one. The emulator takes 30 ms for each.
struct TextPart {
  size_t tokens = 0;
  StepPhase phase = StepPhase::kPrompt;
};
inline const std::vector<TextPart> kTieredText = {{10, StepPhase::kPrompt},
                                                  {3, StepPhase::kDecode},
                                                  {8, StepPhase::kPrompt},
                                                  {3, StepPhase::kDecode}};

/// Logits of every token of the text, prompts in chunks; or the first error.
inline Result<std::vector<float>> evaluate_text(Engine& engine, size_t chunk,
                                                const std::vector<TextPart>& text = kTieredText) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence, engine.create_sequence());
  std::vector<float> logits;
  size_t at = 0;
  for (const TextPart& part : text) {
    const size_t end = at + part.tokens;
    while (at < end) {
      const size_t rows = part.phase == StepPhase::kDecode ? 1 : std::min(chunk, end - at);
      std::vector<TokenId> tokens;
      for (size_t i = at; i < at + rows; ++i) {
        tokens.push_back(static_cast<TokenId>(7 * i % 31 + 1));
      }
      MF_RETURN_IF_ERROR(
          engine.eval(*sequence, tokens, {.logits = LogitsMode::kAll, .phase = part.phase},
                      [&](int64_t, std::span<const float> rows_of_logits) {
                        logits.insert(logits.end(), rows_of_logits.begin(), rows_of_logits.end());
                        return Status();
                      }));
      at += rows;
    }
  }
  return logits;
}

/// A GPU, or the emulator of these options.
inline std::unique_ptr<Device> open_tiered_device(const std::string& name,
                                                  const gpu::EmulatorOptions& emulator) {
  if (name != "emulator") return make_test_device({.device = name});
  return make_emulator_device(emulator);
}

/// Emulators with so much memory each, as one device.
inline std::unique_ptr<Device> open_emulators(gpu::EmulatorOptions options,
                                              const std::vector<uint64_t>& memory) {
  std::vector<std::unique_ptr<Device>> gpus;
  options.host = gpu::make_emulated_host();
  for (const uint64_t bytes : memory) {
    options.memory_bytes = bytes;
    gpus.push_back(make_emulator_device(options));
    ++options.copy_seed;
  }
  if (gpus.size() == 1) return std::move(gpus.front());
  auto split = make_split_device(std::move(gpus));
  EXPECT_TRUE(split.ok()) << (split.ok() ? "" : split.error().to_string());
  return std::move(split).value();
}

/// A family's golden in four bits, and what it computes where all experts are resident.
class TieredModel {
 public:
  static inline const gpu::EmulatorOptions kGpu = {
      .seed = 5, .matrix_units = true, .memory_bytes = uint64_t{1} << 40};

  explicit TieredModel(const std::string& family, const std::string& device_name = "emulator") {
    const TempFolder twin;
    write_quantized_copy(golden_folder(family), folder_.path(), twin.path(), {});
    const std::unique_ptr<Device> device = open_tiered_device(device_name, kGpu);
    auto engine = Engine::open(path(), *device, {.context_length = kContext});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    if (!engine.ok()) return;
    slot_bytes_ = (*engine)->memory_plan().expert_slot_bytes;
    num_slots_ = (*engine)->loaded().experts.num_experts_total();
    auto logits = evaluate_text(**engine, SIZE_MAX);
    EXPECT_TRUE(logits.ok()) << (logits.ok() ? "" : logits.error().to_string());
    EXPECT_EQ((*engine)->expert_stats().far_hits, 0u);
    if (logits.ok()) resident_ = std::move(logits).value();
  }

  const std::string& path() const { return folder_.path(); }
  uint64_t slot_bytes() const { return slot_bytes_; }
  uint64_t num_slots() const { return num_slots_; }  // of all experts
  const std::vector<float>& resident() const { return resident_; }

  EngineOptions options(const Tiers& tiers) const {
    EngineOptions options{.context_length = kContext,
                          .near_cache_bytes = tiers.near_slots * slot_bytes_,
                          .ring_bytes = tiers.ring_slots * slot_bytes_,
                          .lookahead = tiers.lookahead};
    // A bound is shared by both.
    if (tiers.far_slots) {
      options.expert_cache_bytes = (tiers.near_slots + *tiers.far_slots) * slot_bytes_;
    }
    options.placement.margin = tiers.margin;
    return options;
  }

 private:
  static constexpr int64_t kContext = 64;

  TempFolder folder_;
  uint64_t slot_bytes_ = 0;
  uint64_t num_slots_ = 0;
  std::vector<float> resident_;
};

}  // namespace moeflux::testing
