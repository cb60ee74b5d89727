// A model whose layers are split between several GPUs computes what one of them does, bit for bit.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "backend/split/split_device.h"
#include "base/units.h"
#include "devices/open_device.h"
#include "engine/engine.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/golden_file.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

using Logits = std::vector<float>;
constexpr int64_t kChunk = 3;

/// GPUs with so much memory each, as one.
std::unique_ptr<Device> open_gpus(const std::vector<uint64_t>& memory) {
  std::vector<std::unique_ptr<Device>> gpus;
  const auto host = gpu::make_emulated_host();
  for (const uint64_t bytes : memory) {
    gpus.push_back(make_emulator_device(
        {.seed = 5, .matrix_units = true, .memory_bytes = bytes, .host = host}));
  }
  if (gpus.size() == 1) return std::move(gpus.front());
  auto split = make_split_device(std::move(gpus));
  EXPECT_TRUE(split.ok());
  return std::move(split).value();
}

Logits eval(Engine& engine, Sequence& sequence, std::vector<TokenId> tokens, LogitsMode mode) {
  Logits logits;
  const Status done =
      engine.eval(sequence, tokens, {.logits = mode}, [&](int64_t, std::span<const float> rows) {
        logits.insert(logits.end(), rows.begin(), rows.end());
        return Status();
      });
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
  return logits;
}

/// A prompt in chunks, tokens behind it, a fork of it and what comes after going back.
std::vector<Logits> evaluate(const std::string& model, const std::vector<uint64_t>& memory) {
  const std::unique_ptr<Device> device = open_gpus(memory);
  auto opened = Engine::open(model, *device, {.context_length = 32, .prefill_chunk = kChunk});
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().to_string());
  if (!opened.ok()) return {};
  Engine& engine = **opened;
  auto first = engine.create_sequence();
  EXPECT_TRUE(first.ok());
  std::vector<Logits> all;
  all.push_back(eval(engine, **first, {1, 8, 15, 22, 29, 5, 12}, LogitsMode::kLast));
  all.push_back(eval(engine, **first, {3}, LogitsMode::kLast));
  auto second = engine.fork(**first);
  EXPECT_TRUE(second.ok());
  all.push_back(eval(engine, **second, {9, 4}, LogitsMode::kAll));
  all.push_back(eval(engine, **first, {17}, LogitsMode::kLast));
  EXPECT_TRUE(engine.truncate(**first, 5).ok());
  all.push_back(eval(engine, **first, {2, 6, 10, 11}, LogitsMode::kAll));
  return all;
}

/// Recurrent and latent states, shared keys, layers that run again; all families where they are
/// asked for.
std::vector<std::string> chosen_families() {
  if (std::getenv("MOEFLUX_TEST_ALL_SPLITS") != nullptr) return golden_families();
  return {"qwen3_5_moe_text", "deepseek_v32", "gemma4_text", "inkling2_loop_text"};
}

class SplitGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SplitGolden, SeveralGpusGiveTheBitsOfOne) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const std::vector<Logits> one = evaluate(quantized.path(), {kGiB});
  EXPECT_EQ(evaluate(quantized.path(), {kGiB, kGiB}), one);
  EXPECT_EQ(evaluate(quantized.path(), {kGiB, 3 * kGiB, 2 * kGiB}), one);
  EXPECT_EQ(evaluate(quantized.path(), {kGiB, kGiB, kGiB, kGiB}), one);
}

INSTANTIATE_TEST_SUITE_P(All, SplitGolden, ::testing::ValuesIn(chosen_families()),
                         [](const auto& family) { return family.param; });

TEST(SplitDevice, ExpertsThatDoNotFitComeFromTheHost) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder("qwen3_moe"), quantized.path(), twin.path(), {});
  const auto open = [&](const std::vector<uint64_t>& memory) {
    const std::unique_ptr<Device> device = open_gpus(memory);
    auto engine = Engine::open(quantized.path(), *device,
                               {.context_length = 32, .expert_cache_bytes = 64 * kKiB});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    auto sequence = (*engine)->create_sequence();
    const Logits logits = eval(**engine, **sequence, {1, 8, 15, 22}, LogitsMode::kAll);
    EXPECT_GT((*engine)->expert_stats().misses, 0u);
    return logits;
  };
  EXPECT_EQ(open({kGiB, kGiB}), open({kGiB}));
}

TEST(SplitDevice, TakesGpusAlone) {
  expect_error(open_device({.name = "emulator+cpu"}), ErrorCode::kInvalidArgument,
               {"emulator+cpu", "cpu computes alone"});
}

}  // namespace
}  // namespace moeflux::testing
