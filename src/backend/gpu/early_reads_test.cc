// A kernel may read early, but never what the kernel in front of it writes.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "tests/support/device_session.h"
#include "tests/support/one_sequence.h"
#include "tests/support/plan_trace.h"

namespace moeflux::gpu {
namespace {

using testing::DeviceSession;
using testing::one_sequence;

template <typename Params>
Params params_of(const Plan& plan) {
  Params params;
  EXPECT_EQ(plan.params_bytes, sizeof(params));
  std::memcpy(&params, plan.params.data(), sizeof(params));
  return params;
}

class EarlyReads : public ::testing::Test {
 protected:
  PlanLog log_;
  std::unique_ptr<Device> device_ = make_gpu_device(make_plan_trace_platform(log_));
  DeviceSession s_{*device_};
  const Tensor state_ = s_.zeros({1, 128, 128});

  void record_delta() {
    const Tensor one = s_.zeros({1});
    const Tensor scalar = s_.zeros({1, 1});
    s_.encoder().run(ops::GatedDelta{s_.zeros({1, 1, 128}),
                                     s_.zeros({1, 384}),
                                     scalar,
                                     scalar,
                                     one,
                                     one,
                                     one_sequence(1, state_),
                                     {1, 1, 128, 128}});
  }
  /// Whether each of a kernel's plans reads early.
  template <typename Params>
  std::vector<uint32_t> early(KernelId kernel) {
    s_.encoder().submit();
    std::vector<uint32_t> result;
    for (const Plan& plan : log_.plans) {
      if (plan.kernel == kernel) result.push_back(params_of<Params>(plan).early);
    }
    return result;
  }
};

TEST_F(EarlyReads, AStateThatTheLaunchBeforeWritesIsAwaited) {
  record_delta();
  record_delta();
  const Tensor x = s_.zeros({4});
  s_.encoder().run(ops::Scale{x, x, 2.0f});
  record_delta();
  s_.encoder().run(ops::Copy{state_, s_.zeros({1, 128, 128})});
  record_delta();
  EXPECT_EQ(early<DeltaOneParams>(KernelId::gated_delta_t1_d128),
            (std::vector<uint32_t>{1, 0, 1, 0}));
}

TEST_F(EarlyReads, ALaunchOfNothingIsNoLaunch) {
  record_delta();
  const Tensor nothing = s_.zeros({0, 4});
  s_.encoder().run(ops::Scale{nothing, nothing, 2.0f});
  record_delta();
  EXPECT_EQ(early<DeltaOneParams>(KernelId::gated_delta_t1_d128), (std::vector<uint32_t>{1, 0}));
}

TEST_F(EarlyReads, PositionsThatTheLaunchBeforeWritesAreAwaited) {
  const Shape shape{1, 1, 8};
  const Tensor q = s_.zeros(shape);
  const Tensor positions = s_.ints({1}, std::vector<int32_t>{0});
  const std::vector<Tensor> pages = {s_.zeros({4, 1, 8})};
  const auto attend = [&] {
    s_.encoder().run(ops::Rope{q, positions, s_.zeros({4}), {.rotary_dim = 8}});
    s_.encoder().run(ops::Attention{s_.zeros(shape),
                                    q,
                                    s_.zeros(shape),
                                    s_.zeros(shape),
                                    one_sequence(1, {pages, pages, 4, 0}),
                                    {.scale = 1.0f}});
  };
  attend();
  Tensor as_floats = positions;
  as_floats.dtype = DType::kF32;
  s_.encoder().run(ops::Copy{as_floats, s_.zeros({1})});
  attend();
  EXPECT_EQ(early<WriteHeadsParams>(KernelId::write_heads), (std::vector<uint32_t>{1, 0}));
}

// Attention over latents begins to read positions and old keys while the launch before the queries'
// may still run.
TEST_F(EarlyReads, LatentQueriesAwaitPositionsAndPagesThatTheLaunchBeforeWrites) {
  Weight both;
  both.format = QuantFormat::affine(4, 64, DType::kBf16);
  both.rows = 16;
  both.cols = 64;
  both.parts.codes = s_.zeros({16, 8}, DType::kI32);
  both.parts.scales = both.parts.offsets = s_.zeros({16, 1}, DType::kBf16);
  const LatentHeads heads{.norm = s_.zeros({64}),
                          .norm_eps = 1e-6f,
                          .inverse_frequencies = s_.zeros({4}),
                          .rope = {.rotary_dim = 8},
                          .k_up = both,
                          .k_rows = {16, 0, 8},
                          .v_up = both,
                          .v_rows = {16, 8, 8},
                          .scale = 1.0f};
  const Tensor q = s_.zeros({1, 1, 16});
  const Tensor positions = s_.ints({1}, std::vector<int32_t>{0});
  const std::vector<Tensor> keys = {s_.zeros({32, 1, 72})};
  const std::vector<Tensor> values = {keys[0].slice(2, 0, 64)};
  const auto attend = [&] {
    s_.encoder().run(ops::LatentAttention{s_.zeros({1, 1, 8}), q, s_.zeros({1, 72}), positions,
                                          one_sequence(1, {keys, values, 32, 0}), heads});
  };
  s_.encoder().run(ops::Scale{q, q, 2.0f});
  attend();
  Tensor as_floats = positions;
  as_floats.dtype = DType::kF32;
  s_.encoder().run(ops::Copy{as_floats, s_.zeros({1})});
  attend();
  s_.encoder().run(ops::Copy{keys[0], s_.zeros({32, 1, 72})});
  attend();
  EXPECT_EQ(early<LatentQueriesParams>(KernelId::latent_queries_w4),
            (std::vector<uint32_t>{1, 0, 0}));
}

}  // namespace
}  // namespace moeflux::gpu
