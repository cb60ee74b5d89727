// Prompts where experts are brought to them: the bits of short steps, and fewer bytes a token.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "backend/gpu/emulator/emulator.h"
#include "backend/gpu/gpu_device.h"
#include "base/units.h"
#include "engine/tiny_engine_test_util.h"

namespace moeflux {
namespace {

class LongSteps : public TinyEngineTest {
 protected:
  struct Outcome {
    int64_t chunk = 0;
    std::vector<float> logits;
    uint64_t drive_bytes = 0;
    uint64_t bus_bytes = 0;
  };

  /// The whole context as one prompt.
  Outcome evaluate(const EngineOptions& options) {
    const auto engine = open(options);
    const ExpertStats before = engine->expert_stats();
    Outcome outcome{.chunk = engine->prefill_chunk()};
    outcome.logits = eval(*engine, *start(*engine), some_tokens(testing::TinyModel::kContext),
                          LogitsMode::kLast);
    const ExpertStats after = engine->expert_stats();
    outcome.drive_bytes = after.bytes_read - before.bytes_read;
    outcome.bus_bytes = after.bus_bytes - before.bus_bytes;
    return outcome;
  }
  uint64_t slot_bytes() { return open({})->memory_plan().expert_slot_bytes; }
};

TEST_F(LongSteps, AStepOfTwiceTheTokensReadsHalfAsManyBytesATokenFromTheDrive) {
  const EngineOptions streamed{.expert_cache_bytes = 0, .lookahead = LookaheadMode::kOff};
  EngineOptions asked = streamed;
  asked.prefill_chunk = 512;
  const Outcome usual = evaluate(asked);
  const Outcome longer = evaluate(streamed);
  EXPECT_EQ(usual.chunk, 512);
  EXPECT_EQ(longer.chunk, 1024);
  EXPECT_EQ(longer.logits, usual.logits);
  const uint64_t slot = slot_bytes();
  EXPECT_EQ(longer.drive_bytes, 8 * slot);  // each of two layers' four experts, once
  EXPECT_EQ(usual.drive_bytes, 16 * slot);
}

TEST_F(LongSteps, AHostThatHoldsAllExpertsHasTheStepsOfItsDevice) {
  EXPECT_EQ(open({})->prefill_chunk(), 512);
}

TEST_F(LongSteps, ABoundOfMemoryHolds) {
  const auto limited = [](uint64_t bytes) {
    return EngineOptions{.read_memory = [bytes] {
      return HostMemory{.total_bytes = bytes, .available_bytes = bytes};
    }};
  };
  const MemoryPlan all = open(limited(kGiB))->memory_plan();
  const uint64_t scratch = all.scratch_bytes;
  // All but some experts fit beside a reserve of an eighth.
  const uint64_t bytes =
      (all.taken_bytes() - all.reserve_bytes + 4 * all.expert_slot_bytes) * 8 / 7;
  const auto engine = open(limited(bytes));
  EXPECT_TRUE(engine->memory_plan().streams());
  EXPECT_EQ(engine->prefill_chunk(), 512);  // a longer one would leave no expert
  EXPECT_EQ(engine->memory_plan().scratch_bytes, scratch);
}

// On a card whose memory has few of them.
TEST_F(LongSteps, AStepOfTwiceTheTokensTakesHalfAsManyBytesATokenOverTheBus) {
  const uint64_t slot = slot_bytes();
  device_ = make_emulator_device({.memory_bytes = kGiB});
  EngineOptions tiered{.near_cache_bytes = 0, .ring_bytes = 8 * slot};
  const Outcome longer = evaluate(tiered);
  tiered.prefill_chunk = 512;
  const Outcome usual = evaluate(tiered);
  EXPECT_EQ(usual.chunk, 512);
  EXPECT_EQ(longer.chunk, 1024);
  EXPECT_EQ(longer.logits, usual.logits);
  EXPECT_GT(longer.bus_bytes, 0u);
  EXPECT_EQ(usual.bus_bytes, 2 * longer.bus_bytes);
  tiered.near_cache_bytes.reset();
  tiered.prefill_chunk = 0;
  EXPECT_EQ(open(tiered)->prefill_chunk(), 512);  // the card has room for all
}

}  // namespace
}  // namespace moeflux
