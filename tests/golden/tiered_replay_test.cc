// A recorded run, replayed, counts near hits, far hits and moves as the engine did: the same
// placement, called in the same order.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "engine/engine.h"
#include "lab/replay.h"
#include "tests/support/eval_last.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr size_t kReplayPrompt = 12;
constexpr size_t kReplayDecoded = 16;

class TieredReplayTest : public ::testing::Test {
 protected:
  std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(model_, *device_, options);
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    return engine.ok() ? std::move(engine).value() : nullptr;
  }
  uint64_t slot_bytes() {
    return open({.context_length = 16, .near_cache_bytes = 0})->memory_plan().expert_slot_bytes;
  }

  /// Two turns of a prompt in chunks and decode, recorded.
  RouteTrace record(Engine& engine) {
    RouteTraceHeader header{.num_layers = static_cast<int32_t>(engine.spec().layers.size()),
                            .top_k = 2};
    for (const ExpertLayer& layer : engine.loaded().experts.layers) {
      header.num_experts = std::max(header.num_experts, layer.num_experts);
      header.expert_bytes.push_back(layer.bytes_per_expert());
    }
    auto writer = RouteTraceWriter::create(folder_ / "routes.csv", header);
    EXPECT_TRUE(writer.ok());
    engine.experts().routes().observe(writer->get());
    for (const size_t turn : {0, 1}) {
      const auto sequence = std::move(engine.create_sequence()).value();
      std::vector<TokenId> tokens;
      for (size_t i = 0; i < kReplayPrompt + kReplayDecoded; ++i) {
        tokens.push_back(static_cast<TokenId>((7 * i + 5 * turn) % 31 + 1));
      }
      EXPECT_TRUE(eval_last(engine, *sequence, std::span(tokens).first(kReplayPrompt)).ok());
      for (size_t i = kReplayPrompt; i < tokens.size(); ++i) {
        const auto token = std::span(tokens).subspan(i, 1);
        EXPECT_TRUE(eval_last(engine, *sequence, token, StepPhase::kDecode).ok());
      }
    }
    engine.experts().routes().observe(nullptr);
    EXPECT_TRUE((*writer)->commit().ok());
    auto trace = RouteTrace::read(folder_ / "routes.csv");
    EXPECT_TRUE(trace.ok());
    return std::move(trace).value();
  }

  static void expect_same(const NearCounts& replayed, const ExpertStats& counted, size_t near) {
    EXPECT_EQ(replayed.near_hits, counted.near_hits) << near;
    EXPECT_EQ(replayed.far_hits, counted.far_hits) << near;
    EXPECT_EQ(replayed.promotions, counted.promotions) << near;
    EXPECT_GT(counted.promotions, 0u) << near;
  }

  const std::string model_ = tests_directory() + "/golden/models/olmoe";  // 4 layers of 8 experts
  const TempFolder folder_;
  std::unique_ptr<Device> device_ =
      make_emulator_device({.memory_bytes = uint64_t{1} << 40, .copies_at_once = true});
};

TEST_F(TieredReplayTest, CountsAsTheEngineWhereTheHostHoldsAll) {
  const uint64_t slot = slot_bytes();
  for (const size_t near : {3, 8}) {
    const auto engine = open({.context_length = 128,
                              .near_cache_bytes = near * slot,
                              .ring_bytes = 0,
                              .prefill_chunk = 7});
    ASSERT_NE(engine, nullptr);
    const RouteTrace trace = record(*engine);
    const ReplayResult result = replay(trace, {.num_slots = 32, .near_slots = near});
    expect_same(result.near, engine->expert_stats(), near);
    EXPECT_EQ(result.near.tokens, 2 * kReplayDecoded - 2);  // nobody has counted the last two
    EXPECT_EQ(result.decode.misses, 0u);
  }
}

TEST_F(TieredReplayTest, CountsAsTheEngineBeforeADrive) {
  const uint64_t slot = slot_bytes();
  for (const size_t near : {6}) {
    constexpr size_t kCached = 16;
    const auto engine = open({.context_length = 128,
                              .expert_cache_bytes = (near + kCached) * slot,
                              .near_cache_bytes = near * slot,
                              .prefill_chunk = 7,
                              .lookahead = LookaheadMode::kOff});
    ASSERT_NE(engine, nullptr);
    ASSERT_EQ(engine->experts().capacity_bytes(), kCached * slot);
    const RouteTrace trace = record(*engine);
    const ReplayResult result =
        replay(trace, {.num_slots = kCached, .staging = true, .near_slots = near});
    const ExpertStats counted = engine->expert_stats();
    expect_same(result.near, counted, near);
    EXPECT_EQ(result.prefill.hits + result.decode.hits, counted.hits) << near;
    EXPECT_EQ(result.prefill.misses + result.decode.misses, counted.misses) << near;
    EXPECT_EQ(result.evictions, counted.evictions) << near;
    EXPECT_EQ(result.near.tokens, 2 * kReplayDecoded);
  }
}

}  // namespace
}  // namespace moeflux::testing
