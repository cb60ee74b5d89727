// The expert cache shrinks in the middle of a text, and nobody can tell from the results.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/tiny_engine_test_util.h"
#include "tests/support/eval_last.h"

namespace moeflux {
namespace {

class MemoryReleaseTest : public TinyEngineTest {
 protected:
  MemoryReleaseTest() {
    const auto probe = open({});
    slot_ = probe->memory_plan().expert_slot_bytes;
  }

  EngineOptions options(uint64_t slots, IoMode io = IoMode::kAuto) {
    return {.expert_cache_bytes = slots * slot_,
            .expert_io = io,
            .read_memory = [this] { return memory_; },
            .memory_interval = std::chrono::milliseconds(0)};
  }
  /// Logits of one token after the other; from `tight` on, memory is short.
  std::vector<float> decode(Engine& engine, size_t tight) {
    const auto sequence = start(engine);
    std::vector<float> logits;
    for (const TokenId& token : some_tokens(40)) {
      if (--tight == 0) memory_.available_bytes = 0;
      const auto row = eval_last(engine, *sequence, std::span(&token, 1), StepPhase::kDecode);
      EXPECT_TRUE(row.ok());
      logits.insert(logits.end(), row->begin(), row->end());
      if (memory_.available_bytes == 0) memory_.available_bytes = kGiB;  // it has given enough
    }
    return logits;
  }

  uint64_t slot_ = 0;
  HostMemory memory_{.total_bytes = kGiB, .available_bytes = kGiB};
};

TEST_F(MemoryReleaseTest, ShrinkingInTheMiddleOfATextChangesNoBit) {
  const auto roomy = open(options(8));
  const std::vector<float> expected = decode(*roomy, 0);
  EXPECT_EQ(roomy->experts().capacity_bytes(), 8 * slot_);
  for (const IoMode io : {IoMode::kAuto, IoMode::kPread}) {
    const auto tight = open(options(8, io));
    EXPECT_EQ(decode(*tight, 20), expected);
    // The mark is far beyond these slots: one is left, the least that can work.
    EXPECT_EQ(tight->experts().capacity_bytes(), slot_);
  }
}

TEST_F(MemoryReleaseTest, APromptAfterwardsWorksInWhatIsLeft) {
  const auto tight = open(options(8));
  (void)decode(*tight, 3);
  ASSERT_EQ(tight->experts().capacity_bytes(), slot_);
  EXPECT_EQ(all_logits(*tight, some_tokens(50)), all_logits(*open(options(8)), some_tokens(50)));
}

TEST_F(MemoryReleaseTest, FreeMemoryAtOpenIsWhatTheOptionsSay) {
  EngineOptions unbounded = options(0);
  unbounded.expert_cache_bytes = {};
  EXPECT_EQ(open(unbounded)->experts().capacity_bytes(), 8 * slot_);
  memory_.available_bytes = kMiB;
  EXPECT_EQ(open(unbounded)->experts().capacity_bytes(), slot_);
}

}  // namespace
}  // namespace moeflux
