// A prompt's sweep through the experts on a drive in virtual time: the drive works from the first
// layer to the last, through waves, attention and the edges between layers.
#include <gtest/gtest.h>

#include <set>

#include "experts/expert_world_test_util.h"
#include "experts/stores/streamed_expert_store.h"
#include "tests/support/io/virtual_disk.h"

namespace moeflux {
namespace {

constexpr int64_t kTokens = 4;

struct Step {
  double expert_seconds = 0;     // compute of an expert
  double attention_seconds = 0;  // between layers, when nobody looks at the reader
};

class PromptReadAheadTest : public ::testing::Test {
 protected:
  explicit PromptReadAheadTest(const std::set<int32_t>& dense = {}) : world_(dense) {}

  static constexpr double kBytesPerSecond = 1e6;

  double sweep_seconds() const {
    return static_cast<double>(world_.table().bytes_total()) / kBytesPerSecond;
  }

  /// Seconds from the first router to the last expert of a prompt that needs every expert.
  double run(size_t slots, size_t staging, const Step& step) {
    VirtualDisk disk(
        {.latency_seconds = 0, .bytes_per_second = kBytesPerSecond, .virtual_time = true});
    const auto store = world_.store(disk, slots, staging);
    for (int32_t layer = 0; layer < ExpertWorld::kLayers; ++layer) {
      if (world_.table().layers[static_cast<size_t>(layer)].num_experts == 0) continue;
      disk.advance(layer == 0 ? 0.0 : step.attention_seconds);
      compute_layer(*store, disk, layer, step.expert_seconds);
    }
    prefetches_ = store->stats().prefetches;
    EXPECT_EQ(prefetches_, store->stats().prefetches_useful);
    EXPECT_EQ(store->stats().bytes_read, world_.table().bytes_total());
    return disk.now();
  }

  uint64_t prefetches_ = 0;  // of the last run

 private:
  void compute_layer(ExpertStore& store, VirtualDisk& disk, int32_t layer, double expert_seconds) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kTokens * ExpertWorld::kExperts; ++i) {
      ids.push_back(static_cast<int32_t>(i % ExpertWorld::kExperts));
    }
    const ScratchScope scope(encoder_);
    const StepRows rows = prompt_of(kTokens);
    store.begin_step(std::span(&rows, 1), encoder_);
    auto lease = store.lease(LayerId{layer}, encoder_, encoder_.choose(std::move(ids), kTokens));
    ASSERT_TRUE(lease.ok());
    while (true) {
      const auto ready = (*lease)->wait_some();
      ASSERT_TRUE(ready.ok());
      if (ready->empty()) return;
      for (const ExpertWeights& expert : *ready) {
        EXPECT_TRUE(world_.holds_its_bytes(layer, expert));
      }
      disk.advance(expert_seconds * static_cast<double>(ready->size()));
    }
  }

  ExpertWorld world_;
  RoutingEncoder encoder_;
};

// The first layer's experts are small: its attention covers six of the next layer's.
TEST_F(PromptReadAheadTest, AttentionAndWavesCostNothingWhileStagingCoversThem) {
  const double expert = sweep_seconds() / 36;
  const double took = run(8, 6, {.expert_seconds = 0.1 * expert, .attention_seconds = 3 * expert});
  // The rest is the compute of the last arrivals; attention alone would add 6 experts.
  EXPECT_LT(took, sweep_seconds() + expert);
  EXPECT_GE(took, sweep_seconds());
}

TEST_F(PromptReadAheadTest, ComputeHidesReadsWhenItIsTheLongerOne) {
  const double expert = sweep_seconds() / 36;
  const double compute = 36 * 2 * expert + 2 * 3 * expert;
  const double took = run(8, 6, {.expert_seconds = 2 * expert, .attention_seconds = 3 * expert});
  EXPECT_LT(took, 1.1 * compute);
}

// Two slots are one in the drive's hands and one in ours, whatever comes between.
TEST_F(PromptReadAheadTest, WithTwoSlotsItIsSlowAndRight) {
  const double expert = sweep_seconds() / 36;
  const double took = run(3, 2, {.expert_seconds = 0.1 * expert, .attention_seconds = expert});
  EXPECT_LT(took, 1.5 * sweep_seconds());
}

class InterleavedReadAheadTest : public PromptReadAheadTest {
 protected:
  InterleavedReadAheadTest() : PromptReadAheadTest({1}) {}
};

TEST_F(InterleavedReadAheadTest, ADenseLayerBetweenExpertsIsNoEndOfReadingAhead) {
  const double expert = sweep_seconds() / 24;
  const double took = run(8, 6, {.expert_seconds = 0.1 * expert, .attention_seconds = 3 * expert});
  EXPECT_LT(took, sweep_seconds() + expert);
  EXPECT_GE(prefetches_, 6u);
}

}  // namespace
}  // namespace moeflux
