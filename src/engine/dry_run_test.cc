#include "engine/dry_run.h"

#include <gtest/gtest.h>

#include "engine/memory_plan.h"
#include "engine/model_loader.h"
#include "engine/tiny_engine_test_util.h"

namespace moeflux {
namespace {

class DryRunTest : public TinyEngineTest {
 protected:
  std::unique_ptr<LoadedModel> load() {
    auto loaded = load_model(folder_.path(), *device_, WeightLoading::kRead);
    EXPECT_TRUE(loaded.ok());
    return std::move(loaded).value();
  }

  /// Runs a step for real in `scratch_bytes`, with experts left out as the dry run does.
  Status step(const LoadedModel& model, int64_t tokens, size_t scratch_bytes) {
    auto encoder = device_->create_encoder(scratch_bytes);
    auto state = SequenceState::create(*device_, state_specs(model.spec()), tokens);
    EXPECT_TRUE(encoder.ok() && state.ok());
    EXPECT_TRUE((*state)->reserve(tokens, **encoder).ok());
    auto inputs = device_->allocate(1 << 20, MemoryKind::kDevice);
    EXPECT_TRUE(inputs.ok());
    const Tensor ids = Tensor::view(**inputs, 0, {tokens}, DType::kI32);
    const Tensor positions = Tensor::view(**inputs, 2048, {tokens}, DType::kI32);
    const Tensor logits = Tensor::view(**inputs, 4096, {1, model.spec().vocab_size}, DType::kF32);
    const auto no_experts = make_empty_expert_store();
    return model.model->forward({**encoder, ids, positions, **state, *no_experts}, logits);
  }
};

TEST_F(DryRunTest, MeasuresExactlyTheScratchThatAStepTakes) {
  const auto model = load();
  for (const int64_t tokens : {int64_t{1}, int64_t{5}, int64_t{64}}) {
    const auto needs = dry_run(*model->model, tokens, 1);
    ASSERT_TRUE(needs.ok());
    EXPECT_TRUE(step(*model, tokens, needs->scratch_bytes).ok()) << tokens;
    EXPECT_DEATH((void)step(*model, tokens, needs->scratch_bytes - 64), "");
  }
}

TEST_F(DryRunTest, CountsEveryDenseWeightOnceAToken) {
  const auto model = load();
  const auto one = dry_run(*model->model, 1, 1);
  const auto many = dry_run(*model->model, 50, 1);
  ASSERT_TRUE(one.ok() && many.ok());
  EXPECT_GT(one->weight_bytes, 0u);
  EXPECT_LE(one->weight_bytes, model->dense.bytes);
  EXPECT_GT(many->multiply_adds, 40 * one->multiply_adds);
  EXPECT_FALSE(one->ops.empty());
}

TEST_F(DryRunTest, PlanAddsUp) {
  const auto model = load();
  constexpr uint64_t kAvailable = uint64_t{1} << 20;
  const MemoryPlan plan = plan_memory(
      *model, {.available_bytes = kAvailable, .context_length = 257, .scratch_bytes = 1000});
  EXPECT_EQ(plan.dense_bytes, model->dense.bytes);
  EXPECT_EQ(plan.scratch_bytes, 1000u);
  // Gated DeltaNet: (3 taps x 64 channels + 2 heads x 16 x 16) floats; attention: two pages of 256
  // tokens x 1 head x (16 + 16) floats.
  EXPECT_EQ(plan.state_bytes, (3u * 64 + 2 * 16 * 16) * 4 + 512u * 32 * 4);
  EXPECT_EQ(plan.expert_slot_bytes, 3u * 32 * 32 * 4);
  EXPECT_EQ(plan.experts_bytes, 8 * plan.expert_slot_bytes);
  EXPECT_EQ(plan.cold_bytes_per_token, 2 * 2 * plan.expert_slot_bytes);
  EXPECT_EQ(plan.expert_cache_bytes, 8 * plan.expert_slot_bytes);  // all fit
}

TEST_F(DryRunTest, CacheTakesAShareOfWhatIsLeftUnlessTold) {
  const auto model = load();
  const auto plan_for = [&](uint64_t available, std::optional<uint64_t> asked = std::nullopt) {
    return plan_memory(
        *model, {.available_bytes = available, .context_length = 1, .expert_cache_bytes = asked});
  };
  const MemoryPlan none = plan_for(0);
  const uint64_t taken = none.dense_bytes + none.state_bytes + none.scratch_bytes;
  EXPECT_EQ(none.expert_cache_bytes, 0u);
  EXPECT_EQ(plan_for(taken).expert_cache_bytes, 0u);
  EXPECT_EQ(plan_for(taken + none.expert_slot_bytes).expert_cache_bytes, 0u);  // 3/4 of one expert
  EXPECT_EQ(plan_for(taken + 4 * none.expert_slot_bytes).expert_cache_bytes,
            3 * none.expert_slot_bytes);
  EXPECT_EQ(plan_for(0, 12345).expert_cache_bytes, 12345u);
  EXPECT_EQ(plan_for(uint64_t{1} << 50, 0).expert_cache_bytes, 0u);
}

}  // namespace
}  // namespace moeflux
