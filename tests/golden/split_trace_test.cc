// Launches, runs of them and waits of two GPUs that share a model, beside those of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "backend/split/split_device.h"
#include "engine/engine.h"
#include "tests/support/golden_file.h"
#include "tests/support/plan_trace.h"
#include "tests/support/quantized_copy.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 31;

/// One or two traced GPUs, and an engine on them.
class TracedGpus {
 public:
  TracedGpus(const std::string& model, size_t count) : logs_(count) {
    std::vector<std::unique_ptr<Device>> gpus;
    for (gpu::PlanLog& log : logs_) {
      gpus.push_back(
          make_gpu_device(gpu::make_plan_trace_platform(log, /*matrix_units=*/true, kMemory)));
    }
    if (count == 1) {
      device_ = std::move(gpus.front());
    } else {
      auto split = make_split_device(std::move(gpus));
      EXPECT_TRUE(split.ok());
      device_ = std::move(split).value();
    }
    auto engine = Engine::open(
        model, *device_,
        {.context_length = 512, .expert_cache_bytes = kMemory / 2, .prefill_chunk = 8});
    EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().to_string());
    if (!engine.ok()) return;
    engine_ = std::move(*engine);
    auto sequence = engine_->create_sequence();
    EXPECT_TRUE(sequence.ok());
    sequence_ = std::move(*sequence);
  }
  bool ok() const { return sequence_ != nullptr; }

  Status eval(size_t tokens, LogitsMode mode) {
    for (gpu::PlanLog& log : logs_) {
      log.runs.clear();
      log.waits = log.graphs = log.single_launches = 0;
    }
    const std::vector<TokenId> ids(tokens, 1);
    const BestLogits best{.count = 1, .of = static_cast<int32_t>(engine_->spec().vocab_size)};
    return engine_->eval(*sequence_, ids, {.logits = mode, .best = best}, {});
  }
  const gpu::PlanLog& log(size_t gpu) const { return logs_[gpu]; }
  /// Launches of all GPUs.
  size_t launches() const {
    size_t sum = 0;
    for (const gpu::PlanLog& log : logs_) sum = std::reduce(log.runs.begin(), log.runs.end(), sum);
    return sum;
  }

 private:
  std::vector<gpu::PlanLog> logs_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Sequence> sequence_;
};

class SplitTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    write_quantized_copy(golden_folder("qwen3_5_moe_text"), folder_.path(), twin_.path(), {});
  }
  TempFolder folder_;
  TempFolder twin_;
};

// Else its time would be counted with whatever comes next, and its errors told there.
TEST_F(SplitTrace, TokensWithoutLogitsHaveBeenComputed) {
  TracedGpus two(folder_.path(), 2);
  ASSERT_TRUE(two.ok());
  ASSERT_TRUE(two.eval(24, LogitsMode::kNone).ok());
  // Three chunks go from GPU to GPU, and the host waits for the last alone.
  EXPECT_EQ(two.log(0).waits, 1u);
  EXPECT_EQ(two.log(1).waits, 1u);
}

TEST_F(SplitTrace, ATokenHasTheLaunchesOfOneGpuBehindAnyDepth) {
  TracedGpus one(folder_.path(), 1);
  TracedGpus two(folder_.path(), 2);
  ASSERT_TRUE(one.ok() && two.ok());
  for (const size_t depth : {8, 256}) {
    for (TracedGpus* gpus : {&one, &two}) {
      ASSERT_TRUE(gpus->eval(depth, LogitsMode::kNone).ok());
      for (int token = 0; token < 4; ++token) ASSERT_TRUE(gpus->eval(1, LogitsMode::kLast).ok());
    }
    // Routes, shared networks and sums join the launches of experts, as on one.
    EXPECT_EQ(two.launches(), one.launches()) << depth;
    // The second GPU's first run is as long as the first GPU's next would be.
    EXPECT_LE(two.log(0).runs.size() + two.log(1).runs.size(), one.log(0).runs.size() + 2) << depth;
    for (const size_t gpu : {size_t{0}, size_t{1}}) {
      EXPECT_EQ(two.log(gpu).graphs, 0u) << depth;
      EXPECT_EQ(two.log(gpu).single_launches, 0u) << depth;
    }
  }
}

}  // namespace
}  // namespace moeflux::testing
