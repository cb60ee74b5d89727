#include "plan/dry_run.h"

#include <gtest/gtest.h>

#include "backend/host_buffer.h"
#include "backend/op_table.h"
#include "backend/trace/trace_encoder.h"
#include "engine/tiny_engine_test_util.h"
#include "load/model_loader.h"

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
    StepBatch batch;
    batch.add(**state, {.rows = tokens, .logits_rows = 1});
    return model.model->forward({**encoder, ids, positions, batch, *no_experts}, logits);
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

/// Computes all but rotary positions.
class NoRope : public Device {
 public:
  std::string_view name() const override { return "x"; }
  std::string_view description() const override { return "x"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return allocate_host_buffer(bytes);
  }
  Result<std::unique_ptr<Encoder>> create_encoder(size_t) override {
    return std::unique_ptr<Encoder>(std::make_unique<TraceEncoder>());
  }
  Status supports(const ops::AnyOp& op) const override {
    return ops::name_of(op) == "rope" ? ops::missing_cell(op, name()) : Status();
  }
};

TEST_F(DryRunTest, NamesTheOperationThatADeviceDoesNotCompute) {
  const auto model = load();
  const NoRope device;
  const auto needs = dry_run(*model->model, 1, 1, &device);
  ASSERT_FALSE(needs.ok());
  EXPECT_EQ(needs.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(needs.error().message(), "rope: x does not compute it");
}

}  // namespace
}  // namespace moeflux
