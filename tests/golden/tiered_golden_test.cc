// A GPU whose memory holds some experts computes what one that holds all does, bit for bit,
// whichever they are, while they change places, while prompts stream the others through, and while
// a helper computes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/format.h"
#include "base/json.h"
#include "engine/engine.h"
#include "tests/golden/tiered_test_util.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr size_t kPrompt = 9;
constexpr size_t kDecoded = 6;

/// How experts lie, and how the tokens come.
struct TieredDraw {
  std::optional<uint64_t> near_slots;  // none: all are resident
  uint64_t ring_slots = 0;
  size_t chunk = kPrompt;
  bool streams = false;             // the host's memory lacks room for one expert
  PlanMode plan = PlanMode::kNear;  // whether another encoder computes those in the host's memory
  double margin = 2.0;
  uint64_t copy_seed = 0;
};

struct TieredOutcome {
  std::vector<float> logits;  // of every token
  ExpertStats experts;
  uint64_t slot_bytes = 0;
  uint64_t num_slots = 0;  // of all experts
};

std::unique_ptr<Device> open_tiered(const std::string& name, uint64_t copy_seed) {
  gpu::EmulatorOptions emulator = TieredModel::kGpu;
  emulator.copy_seed = copy_seed;
  return open_tiered_device(name, emulator);
}

/// A prompt in chunks, then token by token.
TieredOutcome evaluate(const std::string& model, const std::string& device_name,
                       const TieredDraw& draw, const TieredOutcome& resident) {
  const uint64_t slot_bytes = resident.slot_bytes;
  const auto device = open_tiered(device_name, draw.copy_seed);
  TieredOutcome outcome;
  EngineOptions options{.context_length = 32};
  if (draw.near_slots) options.near_cache_bytes = *draw.near_slots * slot_bytes;
  if (draw.streams) options.expert_cache_bytes = (resident.num_slots - 1) * slot_bytes;
  options.ring_bytes = draw.ring_slots * slot_bytes;
  options.placement.margin = draw.margin;
  options.plan = draw.plan;
  options.helper = draw.plan == PlanMode::kNear ? nullptr : device.get();
  auto engine = Engine::open(model, *device, options);
  EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
  if (!engine.ok()) return outcome;
  auto sequence = (*engine)->create_sequence();
  EXPECT_TRUE(sequence.ok());
  size_t at = 0;
  while (at < kPrompt + kDecoded) {
    const size_t rows = at < kPrompt ? std::min(draw.chunk, kPrompt - at) : 1;
    std::vector<TokenId> tokens;
    for (size_t i = at; i < at + rows; ++i) tokens.push_back(static_cast<TokenId>(7 * i % 31 + 1));
    const StepPhase phase = at < kPrompt ? StepPhase::kPrompt : StepPhase::kDecode;
    const Status done =
        (*engine)->eval(**sequence, tokens, {.logits = LogitsMode::kAll, .phase = phase},
                        [&](int64_t, std::span<const float> logits) {
                          outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
                          return Status();
                        });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    if (!done.ok()) return outcome;
    at += rows;
  }
  outcome.experts = (*engine)->expert_stats();
  outcome.slot_bytes = (*engine)->memory_plan().expert_slot_bytes;
  outcome.num_slots = (*engine)->loaded().experts.num_experts_total();
  return outcome;
}

struct TieredCase {
  std::string family;
  std::string device;
};

// One token's room; few tokens have experts brought; a prompt goes through the ring; the drive.
const std::vector<TieredDraw> kDraws = {{.ring_slots = 0, .chunk = 3},
                                        {.chunk = 3, .streams = true},
                                        {.ring_slots = 32, .chunk = 3},
                                        {.ring_slots = 32, .chunk = kPrompt},
                                        {.ring_slots = 32, .chunk = 3, .plan = PlanMode::kHelper},
                                        {.chunk = 1, .streams = true, .plan = PlanMode::kHelper}};

// A family's draws have one of these each, the next family's another, so that all pairs are met.
// Draws of all families under many more are TieredDraws.
constexpr uint64_t kNearSlots[] = {0, 1, 2, 4, 7};

class TieredGolden : public ::testing::TestWithParam<TieredCase> {};

// In such a model not every draw leaves an expert that is looked up in the host's memory: a
// prompt's go through the ring, and before the drive the least cache keeps none that is asked for
// again.
bool has_one_expert_layer(const std::string& family) {
  const auto config = parse_json(read_bytes(golden_folder(family) + "/config.json"), family);
  EXPECT_TRUE(config.ok());
  return config.ok() && config->value("num_hidden_layers", 0) == 2 &&
         config->value("first_k_dense_replace", 0) == 1;
}

TEST_P(TieredGolden, PlacesChangeNoBit) {
  if (const std::string missing = missing_gpu(GetParam().device); !missing.empty()) {
    GTEST_SKIP() << "hardware: " << missing;
  }
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam().family), quantized.path(), twin.path(), {});
  const std::string& device = GetParam().device;
  const bool one_layer = has_one_expert_layer(GetParam().family);
  const TieredOutcome resident = evaluate(quantized.path(), device, {}, {});
  EXPECT_EQ(resident.experts.far_hits, 0u);
  const std::vector<std::string> families = moe_families();
  const auto shift =
      static_cast<size_t>(std::ranges::find(families, GetParam().family) - families.begin());
  std::minstd_rand random(static_cast<uint32_t>(shift + 1));
  uint64_t promotions = 0;
  uint64_t far_hits = 0;
  for (size_t i = 0; i < kDraws.size(); ++i) {
    const uint64_t near = kNearSlots[(i + shift) % std::size(kNearSlots)];
    TieredDraw draw = kDraws[i];
    draw.near_slots = near;
    if (draw.plan == PlanMode::kHelper && !draw.streams && shift % 2 == 0) {
      draw.plan = PlanMode::kShared;
    }
    draw.margin = (i / 4 + shift) % 2 == 0 ? 0.0 : 2.0;
    draw.copy_seed = random();
    const TieredOutcome tiered = evaluate(quantized.path(), device, draw, resident);
    EXPECT_EQ(tiered.logits, resident.logits)
        << near << " near, streams " << draw.streams << ", " << draw.ring_slots
        << " in the ring, chunks of " << draw.chunk << ", margin " << draw.margin << ", copies "
        << draw.copy_seed << ", plan " << plan_name(draw.plan);
    EXPECT_EQ(tiered.experts.helped_steps > 0, draw.plan != PlanMode::kNear);
    // Experts that a helper multiplies stay where they are: the bus carries promotions, of one size
    // each.
    if (draw.plan == PlanMode::kHelper && draw.ring_slots == 0 && tiered.experts.promotions > 0) {
      EXPECT_EQ(tiered.experts.bus_bytes % tiered.experts.promotions, 0u) << near;
    }
    if (near > 0) far_hits += tiered.experts.far_hits;
    promotions += tiered.experts.promotions;
  }
  EXPECT_GT(promotions, 0u);
  EXPECT_TRUE(one_layer || far_hits > 0);
}

// As any error of a GPU it ends all work of its encoder.
TEST(TieredExperts, ACopyThatFailsEndsTheStepWithItsError) {
  const std::string model = tests_directory() + "/golden/models/olmoe";
  for (const uint64_t failing : {1, 3}) {
    const auto device =
        make_emulator_device({.memory_bytes = uint64_t{1} << 40, .failing_copy = failing});
    EngineOptions options{.context_length = 64, .near_cache_bytes = 0};
    auto probe = Engine::open(model, *device, options);
    ASSERT_TRUE(probe.ok()) << probe.error().to_string();
    options.near_cache_bytes = 3 * (*probe)->memory_plan().expert_slot_bytes;
    options.placement.margin = 0.0;
    auto engine = Engine::open(model, *device, options);
    ASSERT_TRUE(engine.ok()) << engine.error().to_string();
    auto sequence = (*engine)->create_sequence();
    ASSERT_TRUE(sequence.ok());
    Status done;
    for (TokenId token = 1; token < 60 && done.ok(); ++token) {
      done = (*engine)->eval(**sequence, std::span(&token, 1), {.phase = StepPhase::kDecode}, {});
    }
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code(), ErrorCode::kIo) << done.error().to_string();
    EXPECT_NE(done.error().message().find(formatted("copy {}", failing)), std::string::npos);
  }
}

std::vector<TieredCase> tiered_cases() {
  std::vector<TieredCase> all;
  for (const std::string& family : moe_families(asked(golden_families()))) {
    all.push_back({family, "emulator"});
  }
  for (const std::string& device : and_built_gpus({})) {
    for (const char* family : {"olmoe", "qwen3_5_moe_text", "deepseek_v3", "gpt_oss"}) {
      all.push_back({family, device});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, TieredGolden, ::testing::ValuesIn(tiered_cases()),
                         [](const auto& test) {
                           return test.param.family + "_" + test_name_of(test.param.device);
                         });

}  // namespace
}  // namespace moeflux::testing
