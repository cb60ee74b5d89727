// A model whose layers are split between several GPUs computes what one of them does, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"
#include "devices/open_device.h"
#include "engine/device_gain.h"
#include "engine/engine.h"
#include "tests/golden/tiered_test_util.h"
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
  return open_emulators(TieredModel::kGpu, memory);
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
std::vector<Logits> evaluate(const std::string& model, const std::vector<uint64_t>& memory,
                             SplitMode split = SplitMode::kLayers) {
  const std::unique_ptr<Device> device = open_gpus(memory);
  auto opened =
      Engine::open(model, *device, {.context_length = 32, .split = split, .prefill_chunk = kChunk});
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

TEST_P(SplitGolden, SharedExpertsGiveTheBitsOfOneGpu) {
  const std::vector<std::string> moe = moe_families();
  if (std::ranges::find(moe, GetParam()) == moe.end()) return;
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const std::vector<Logits> one = evaluate(quantized.path(), {kGiB});
  for (const std::vector<uint64_t>& memory : std::vector<std::vector<uint64_t>>{
           {kGiB, kGiB}, {kGiB, 3 * kGiB, 2 * kGiB}, {kGiB, kGiB, kGiB, kGiB}}) {
    EXPECT_EQ(evaluate(quantized.path(), memory, SplitMode::kExperts), one) << memory.size();
  }
}

/// Two heads of keys on all GPUs or on some of them. Layers with windows or recurrent states beside
/// them, sinks, lent keys.
class DividedHeads : public ::testing::TestWithParam<std::string> {};

TEST_P(DividedHeads, GiveTheBitsOfOneGpu) {
  const TempFolder quantized;
  const TempFolder twin;
  write_quantized_copy(golden_folder(GetParam()), quantized.path(), twin.path(), {});
  const std::vector<Logits> one = evaluate(quantized.path(), {kGiB});
  for (const std::vector<uint64_t>& memory : std::vector<std::vector<uint64_t>>{
           {kGiB, kGiB}, {kGiB, 3 * kGiB, 2 * kGiB}, {kGiB, kGiB, kGiB, kGiB}}) {
    EXPECT_EQ(evaluate(quantized.path(), memory, SplitMode::kAttention), one) << memory.size();
  }
}

INSTANTIATE_TEST_SUITE_P(All, DividedHeads,
                         ::testing::Values("qwen3_5_moe_text", "gpt_oss", "gemma4_text", "qwen3"),
                         [](const auto& family) { return family.param; });

TEST(SplitDevice, SnapshotsOfDividedHeadsAreThoseOfOneGpu) {
  const TieredModel model("qwen3_5_moe_text");
  const auto open = [&](Device& device, SplitMode split) {
    EngineOptions options = model.options({.near_slots = model.num_slots(), .ring_slots = 0});
    options.split = split;
    auto engine = Engine::open(model.path(), device, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return std::move(*engine);
  };
  const std::unique_ptr<Device> gpu = open_gpus({kGiB});
  const std::unique_ptr<Device> gpus = open_gpus({kGiB, kGiB, kGiB});
  const auto one = open(*gpu, SplitMode::kLayers);
  const auto divided = open(*gpus, SplitMode::kAttention);
  std::vector<TokenId> tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(7 * i % 31 + 1);
  auto first = one->create_sequence();
  auto second = divided->create_sequence();
  (void)eval(*one, **first, tokens, LogitsMode::kLast);
  (void)eval(*divided, **second, tokens, LogitsMode::kLast);
  const auto saved = one->save(**first);
  const auto also = divided->save(**second);
  ASSERT_TRUE(saved.ok() && also.ok());
  EXPECT_TRUE(*saved == *also);
  auto third = divided->create_sequence();
  ASSERT_TRUE(divided->load(**third, *saved).ok());
  EXPECT_EQ(eval(*divided, **third, {3, 4}, LogitsMode::kAll),
            eval(*one, **first, {3, 4}, LogitsMode::kAll));
}

TEST(SplitDevice, HeadsOfOneRowOfKeysAreNotDivided) {
  const std::unique_ptr<Device> two = open_gpus({kGiB, kGiB});
  expect_error(Engine::open(golden_folder("deepseek_v3"), *two,
                            {.context_length = 32, .split = SplitMode::kAttention}),
               ErrorCode::kUnsupported, {"split attention", "deepseek_v3", "--split"});
}

INSTANTIATE_TEST_SUITE_P(All, SplitGolden, ::testing::ValuesIn(chosen_families()),
                         [](const auto& family) { return family.param; });

/// GPUs that have experts in their memory now.
size_t gpus_with_near(const Engine& engine, const Device& device) {
  const ExpertMap map = engine.expert_map();
  std::set<size_t> gpus;
  for (size_t i = 0; i < map.places.size(); ++i) {
    if (map.places[i] != ExpertPlace::kDevice) continue;
    const auto layer = static_cast<int32_t>(i / static_cast<size_t>(map.num_experts));
    gpus.insert(device.part_of(LayerId{layer}));
  }
  return gpus.size();
}

/// Draws of tiers on many numbers of GPUs are TieredDraws.
TEST_P(SplitGolden, EachGpuHasItsOwnTierOfExperts) {
  const std::vector<std::string> moe = moe_families();
  if (std::ranges::find(moe, GetParam()) == moe.end()) return;
  const TieredModel model(GetParam());
  constexpr uint64_t kMany = uint64_t{1} << 40;
  const uint64_t few = model.num_slots() / 3;
  const std::vector<Tiers> tiers = {{.near_slots = few, .ring_slots = 32, .margin = 0.0},
                                    {.near_slots = few, .far_slots = 2 * few - 1}};
  const std::unique_ptr<Device> device = open_gpus({kMany, 2 * kMany, kMany});
  for (const Tiers& drawn : tiers) {
    auto engine = Engine::open(model.path(), *device, model.options(drawn));
    ASSERT_TRUE(engine.ok()) << engine.error().to_string();
    EXPECT_EQ(gpus_with_near(**engine, *device) > 1, !drawn.far_slots);
    const auto logits = evaluate_text(**engine, 9);
    ASSERT_TRUE(logits.ok()) << logits.error().to_string();
    EXPECT_EQ(*logits, model.resident());
    const ExpertStats stats = (*engine)->expert_stats();
    EXPECT_GT(stats.far_hits, 0u);
    // Before the drive, what so few tokens bring near depends on when copies are made.
    EXPECT_TRUE(drawn.far_slots || stats.near_hits > 0);
  }
}

// The least cards that open keep weights of layers in the host's memory, each those that it lacks
// room for.
TEST(SplitDevice, CardsThatAreTooSmallForTheirLayersHaveTheBitsOfOne) {
  const TieredModel model("qwen3_5_moe_text");
  for (const SplitMode split : {SplitMode::kLayers, SplitMode::kAttention}) {
    int opened = 0;
    for (uint64_t kib = 1024; kib < 8192 && opened < 3; kib += 8) {
      const std::unique_ptr<Device> device = open_gpus({(kib + 16) * kKiB, kib * kKiB});
      EngineOptions options = model.options({.near_slots = 2, .ring_slots = 0});
      options.split = split;
      auto engine = Engine::open(model.path(), *device, options);
      if (!engine.ok()) {
        EXPECT_EQ(engine.error().code(), ErrorCode::kResourceExhausted)
            << engine.error().to_string();
        continue;
      }
      if (opened++ == 0) {
        EXPECT_GT((*engine)->loaded().dense.host_bytes, 0u);
      }
      const auto logits = evaluate_text(**engine, 9);
      ASSERT_TRUE(logits.ok()) << logits.error().to_string();
      EXPECT_EQ(*logits, model.resident()) << kib;
      EXPECT_GT((*engine)->expert_stats().far_hits, 0u);
    }
    EXPECT_GT(opened, 0);
  }
}

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

TEST(SplitDevice, SharedExpertsWantGpusThatReachEachOtherAndRoomForAll) {
  const TieredModel model("qwen3_5_moe_text");
  const auto refused = [&](Device& device, ErrorCode code,
                           std::initializer_list<std::string_view> words, uint64_t near_slots) {
    EngineOptions options = model.options({.near_slots = near_slots, .ring_slots = 0});
    options.split = SplitMode::kExperts;
    expect_error(Engine::open(model.path(), device, options), code, words);
  };
  const uint64_t all = model.num_slots();
  const std::unique_ptr<Device> one = open_gpus({kGiB});
  refused(*one, ErrorCode::kInvalidArgument, {"split experts", "is one", "--device"}, all);
  const std::unique_ptr<Device> two = open_gpus({kGiB, kGiB});
  refused(*two, ErrorCode::kResourceExhausted, {"split experts", "--split"}, all / 2);
  std::vector<std::unique_ptr<Device>> apart;
  for (int i = 0; i < 2; ++i) apart.push_back(make_emulator_device(TieredModel::kGpu));
  auto strangers = make_split_device(std::move(apart));
  ASSERT_TRUE(strangers.ok());
  refused(**strangers, ErrorCode::kUnsupported, {"split experts", "does not reach"}, all);
}

TEST(SplitDevice, SaysWhetherAllGpusGainBeforeAModelIsOpened) {
  const TieredModel model("qwen3_5_moe_text");
  const std::unique_ptr<Device> two = open_gpus({kGiB, kGiB});
  const std::vector<uint64_t> before = two->free_bytes_by_part();
  const Result<bool> gains = gains_from_all_parts(model.path(), *two, {});
  ASSERT_TRUE(gains.ok()) << gains.error().to_string();
  EXPECT_FALSE(*gains);  // work is handed over in a time that is longer than a tiny layer's
  EXPECT_EQ(two->free_bytes_by_part(), before);
  const TempFolder empty;
  EXPECT_FALSE(gains_from_all_parts(empty.path(), *two, {}).ok());
}

TEST(SplitDevice, TakesGpusAlone) {
  expect_error(open_device({.name = "emulator+cpu"}), ErrorCode::kInvalidArgument,
               {"emulator+cpu", "cpu computes alone"});
}

}  // namespace
}  // namespace moeflux::testing
