// Promises of every GPU device beside its numbers: errors that stick and name their kernel, leases
// that live as long as the work, tables that are written once.
#include "backend/gpu/gpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/launch/plan_building.h"
#include "tests/support/device_session.h"
#include "tests/support/one_sequence.h"
#include "tests/support/plan_trace.h"

namespace moeflux {
namespace {

using testing::DeviceSession;

struct CountedLease : Retained {
  explicit CountedLease(int& count) : alive(count) { ++alive; }
  ~CountedLease() override { --alive; }
  int& alive;
};

TEST(GpuDevice, WantsLongChunksOnMatrixUnitsAndLongerOnesInMuchMemory) {
  const auto chunk = [](const gpu::EmulatorOptions& options) {
    return make_emulator_device(options)->preferred_prefill_chunk();
  };
  EXPECT_EQ(chunk({}), kPrefillChunkUsual);
  EXPECT_EQ(chunk({.memory_bytes = uint64_t{1} << 40}), kPrefillChunkUsual);
  const int64_t little = chunk({.matrix_units = true, .memory_bytes = uint64_t{8} << 30});
  EXPECT_GT(little, kPrefillChunkUsual);
  EXPECT_EQ(chunk({.matrix_units = true}), little);
  EXPECT_GT(chunk({.matrix_units = true, .memory_bytes = uint64_t{100} << 30}), little);
}

TEST(GpuDevice, PrefersKeysAndValuesInF16) {
  const std::unique_ptr<Device> device = make_emulator_device({});
  EXPECT_TRUE(device->takes_narrow_cache());
  EXPECT_FALSE(device->takes_mixed_cache());
  EXPECT_EQ(device->preferred_cache_type(), DType::kF16);
}

// One size that kernels take, and one more.
TEST(GpuDevice, SaysBeforehandWhatItsKernelsDoNotTake) {
  const std::unique_ptr<Device> device = make_emulator_device({});
  DeviceSession s(*device);
  const auto expect_limit = [&]<typename Op>(const Op& fits, const Op& exceeds) {
    EXPECT_TRUE(device->supports({ops::kind_of<Op>(), &fits}).ok()) << Op::kName;
    const Status status = device->supports({ops::kind_of<Op>(), &exceeds});
    ASSERT_FALSE(status.ok()) << Op::kName;
    EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(status.error().message().rfind(Op::kName, 0), 0u) << status.error().message();
  };
  expect_limit(ops::Route{.logits = s.zeros({1, 1024})}, ops::Route{.logits = s.zeros({1, 1025})});
  const Tensor table = s.zeros({2, 33}, DType::kI32);
  const auto listed = [&](int64_t top_k) {
    return ops::Route{{s.zeros({1, top_k}, DType::kI32), s.zeros({1, top_k})},
                      s.zeros({1, 64}),
                      {.table = table.slice(1, 0, top_k)}};
  };
  expect_limit(listed(32), listed(33));
  expect_limit(ops::GatedDelta{.options = {.key_dim = 256}},
               ops::GatedDelta{.options = {.key_dim = 257}});
  expect_limit(ops::GatedDelta{.options = {.key_dim = 128, .row_decay = true}},
               ops::GatedDelta{.options = {.key_dim = 129, .row_decay = true}});
  expect_limit(ops::SelectiveScan{.options = {.state_dim = 128}},
               ops::SelectiveScan{.options = {.state_dim = 129}});
  expect_limit(ops::SelectKeys{.q = s.zeros({1, 1, 8}), .options = {.unit = 1}},
               ops::SelectKeys{.q = s.zeros({1, 1, 8}), .options = {.unit = 1 << 20}});
  Weight weight = s.weight(16, 32, std::vector<float>(512));
  Weight tiles = weight;
  tiles.format = QuantFormat::affine(4, 32, DType::kBf16).with_order(WeightOrder::kTiled);
  expect_limit(ops::Linear{.weight = weight}, ops::Linear{.weight = tiles});
  expect_limit(ops::GatedFfn{.weights = {weight, weight, weight}},
               ops::GatedFfn{.weights = {weight, weight, tiles}});
  const std::vector<ExpertWeights> experts = {{ExpertId{0}, weight, weight, tiles}};
  expect_limit(ops::ExpertFfn{}, ops::ExpertFfn{.ready = experts});
  const std::vector<Tensor> wide = {s.zeros({4, 1, 32})};
  const std::vector<Tensor> narrow = {s.zeros({4, 1, 32}, DType::kF16)};
  const KvRows alike{1, {wide, wide, 4, 0}};
  const KvRows mixed{1, {wide, narrow, 4, 0}};
  const Tensor out = s.zeros({1, 1, 32});
  expect_limit(ops::Attention{.out = out, .sequences = {&alike, 1}},
               ops::Attention{.out = out, .sequences = {&mixed, 1}});
}

TEST(GpuEncoder, KeepsLeasesUntilTheWorkHasFinished) {
  const auto device = make_emulator_device({});
  DeviceSession s(*device);
  int alive = 0;
  s.encoder().keep_alive(std::make_unique<CountedLease>(alive));
  EXPECT_EQ(alive, 1);
  const EventId first = s.encoder().submit();
  s.encoder().keep_alive(std::make_unique<CountedLease>(alive));
  ASSERT_TRUE(s.encoder().wait(first).ok());
  EXPECT_EQ(alive, 1);  // the second belongs to work that nobody has submitted
  const Tensor x = s.zeros({1});
  (void)s.read(x);
  EXPECT_EQ(alive, 0);
}

TEST(GpuEncoder, AFaultNamesItsKernelAndSticks) {
  const auto device = make_emulator_device({});
  DeviceSession s(*device);
  const std::vector<int32_t> beyond = {1000};  // the table has two rows
  const Tensor out = s.zeros({1, 32});
  s.encoder().run(ops::Embed{out, s.weight(2, 32, std::vector<float>(64)), s.ints({1}, beyond)});
  std::vector<float> values(32);
  for (int i = 0; i < 2; ++i) {
    const Status status = s.encoder().read(std::as_writable_bytes(std::span(values)), out);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message().find("kernel embed_rows"), std::string::npos);
    EXPECT_NE(status.error().message().find("binding 0"), std::string::npos);
  }
}

TEST(GpuEncoder, RefusesWeightsInTilesAndSaysWhich) {
  const auto device = make_emulator_device({});
  DeviceSession s(*device);
  Weight weight = s.weight(16, 32, std::vector<float>(512));
  weight.format = QuantFormat::affine(4, 32, DType::kBf16).with_order(WeightOrder::kTiled);
  s.encoder().run(ops::Linear{s.zeros({1, 16}), s.zeros({1, 32}), weight});
  const Status status = s.encoder().wait(s.encoder().submit());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(status.error().message().find("affine-4/32 tiled"), std::string::npos);
}

TEST(GpuEncoder, WritesATableOfPagesOnlyWhenPagesChange) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log));
  DeviceSession s(*device);
  std::vector<Tensor> pages = {s.zeros({4, 1, 8})};
  const Tensor x = s.zeros({1, 1, 8});
  const Tensor out = s.zeros({1, 1, 8});
  const auto writes_of_step = [&](int64_t length) {
    log.lines.clear();
    s.encoder().run(
        ops::Attention{out, x, x, x, testing::one_sequence(1, {pages, pages, 4, length}), {}});
    return std::count_if(log.lines.begin(), log.lines.end(),
                         [](const std::string& line) { return line.rfind("write ", 0) == 0; });
  };
  EXPECT_EQ(writes_of_step(0), 1);
  EXPECT_EQ(writes_of_step(1), 0);
  pages.push_back(s.zeros({4, 1, 8}));
  EXPECT_EQ(writes_of_step(4), 1);
}

/// Two experts of two inputs and two outputs, all of them numbers `value`.
std::shared_ptr<std::vector<ExpertWeights>> equal_experts(DeviceSession& s, float value) {
  auto experts = std::make_shared<std::vector<ExpertWeights>>();
  for (int32_t e = 0; e < 2; ++e) {
    const std::vector<float> values(4, value);
    experts->push_back(
        {ExpertId{e}, s.weight(2, 2, values), s.weight(2, 2, values), s.weight(2, 2, values)});
  }
  return experts;
}

/// The slots of one token that both experts compute.
Tensor record_experts(DeviceSession& s, const std::vector<ExpertWeights>& experts) {
  const std::vector<int32_t> ids = {1, 0};
  const Tensor slots = s.zeros({1, 2, 2});
  s.encoder().run(ops::ExpertFfn{slots,
                                 s.zeros({1, 2, 2}),
                                 s.floats({1, 2}, std::vector<float>{1, 1}),
                                 {s.ints({1, 2}, ids), s.zeros({1, 2})},
                                 experts,
                                 {}});
  return slots;
}

TEST(GpuEncoder, WritesTheTableOfExpertsThatStayOnce) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log));
  DeviceSession s(*device);
  const auto experts = equal_experts(s, 1.0f);
  const auto bytes_of_step = [&] {
    log.lines.clear();
    s.encoder().experts_stay(experts);
    (void)record_experts(s, *experts);
    return std::count(log.lines.begin(), log.lines.end(), "write 200 bytes");  // map and entries
  };
  EXPECT_EQ(bytes_of_step(), 1);
  EXPECT_EQ(bytes_of_step(), 0);
}

TEST(GpuEncoder, ExpertsThatHaveLeftAreNotTakenForOthersInTheirPlace) {
  const auto device = make_emulator_device({});
  DeviceSession s(*device);
  std::vector<ExpertWeights> place = *equal_experts(s, 1.0f);
  std::vector<Tensor> slots;
  for (const float value : {1.0f, 2.0f, 3.0f}) {
    const auto next = equal_experts(s, value);
    std::copy(next->begin(), next->end(), place.begin());
    const auto owner = std::make_shared<int>();  // leaves while the work is still recorded
    if (value != 2.0f) {
      s.encoder().experts_stay(std::shared_ptr<const std::vector<ExpertWeights>>(owner, &place));
    }
    slots.push_back(record_experts(s, place));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    DeviceSession alone(*device);
    const auto experts = equal_experts(alone, static_cast<float>(i + 1));
    EXPECT_EQ(s.read(slots[i]), alone.read(record_experts(alone, *experts))) << i;
  }
}

/// A matrix of 4-bit codes that matrix units multiply, all of them 0.
Weight codes(DeviceSession& s, int64_t rows, int64_t cols) {
  Weight w;
  w.format = QuantFormat::affine(4, 64, DType::kBf16);
  w.rows = rows;
  w.cols = cols;
  w.parts.codes = s.zeros({rows, cols / 8}, DType::kI32);
  w.parts.scales = s.zeros({rows, cols / 64}, DType::kBf16);
  w.parts.offsets = s.zeros({rows, cols / 64}, DType::kBf16);
  return w;
}

/// The kernels of one layer of experts for `n` tokens.
std::vector<std::string> kernels_of_layer(DeviceSession& s, gpu::PlanLog& log, int64_t n,
                                          int64_t shared_intermediate, bool reads_ids,
                                          int64_t hidden = 64) {
  Encoder& e = s.encoder();
  const Tensor x = s.zeros({n, hidden});
  const Tensor logits = s.zeros({n, 3});
  const Tensor gate = s.zeros({n, 1});
  const Routes routes{s.zeros({n, 2}, DType::kI32), s.zeros({n, 2})};
  const Tensor slots = s.zeros({n, 2, hidden});
  const Tensor space = s.zeros({n, 2, 64});
  const Tensor shared = s.zeros({n, hidden});
  std::vector<ExpertWeights> experts;
  for (int32_t i = 0; i < 3; ++i) {
    experts.push_back(
        {ExpertId{i}, codes(s, 64, hidden), codes(s, 64, hidden), codes(s, hidden, 64)});
  }
  const GluWeights network{codes(s, shared_intermediate, hidden),
                           codes(s, shared_intermediate, hidden),
                           codes(s, hidden, shared_intermediate)};
  const Weight router = codes(s, 3, hidden);
  const Weight gate_weight = codes(s, 1, hidden);
  log.lines.clear();
  e.run(ops::Linear{gate, x, gate_weight});
  e.run(ops::Linear{logits, x, router});
  e.run(ops::Route{routes, logits, {}});
  if (reads_ids) (void)s.read_ints(routes.ids);
  e.run(ops::GatedFfn{shared, x, network, gate, {}});
  e.run(ops::ExpertFfn{slots, space, x, routes, experts, {}});
  e.run(ops::CombineExperts{x, slots, routes});
  e.run(ops::Add{x, x, shared});
  (void)e.submit();
  std::vector<std::string> kernels;
  for (const std::string& line : log.lines) {
    if (line.rfind("write ", 0) != 0) kernels.push_back(line.substr(0, line.find(' ')));
  }
  return kernels;
}

TEST(GpuEncoder, AFewTokensExpertsRoutesAndSharedNetworkTakeTwoLaunches) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log, /*matrix_units=*/true));
  DeviceSession s(*device);
  using Kernels = std::vector<std::string>;
  const Kernels shared = {"mma_linear_w4_t1", "mma_gate_up_w4_t1", "mma_down_sum_w4_t1"};
  EXPECT_EQ(kernels_of_layer(s, log, 1, 64, /*reads_ids=*/false), shared);
  EXPECT_EQ(kernels_of_layer(s, log, 3, 64, /*reads_ids=*/false), shared);
  // Ids that the host wants are chosen at once; another width needs launches of its own.
  EXPECT_EQ(kernels_of_layer(s, log, 1, 64, /*reads_ids=*/true),
            (Kernels{"mma_linear_w4_t1", "route_tokens", "read", "mma_gate_up_w4_t1",
                     "mma_down_sum_w4_t1"}));
  EXPECT_EQ(kernels_of_layer(s, log, 1, 128, /*reads_ids=*/false),
            (Kernels{"mma_linear_w4_t1", "mma_gate_up_w4_t1", "mma_down_w4_t1", "mma_gate_up_w4_t1",
                     "mma_down_sum_w4_t1"}));
}

TEST(GpuEncoder, LargeExpertsAndTheSharedOneAreAListOfTiles) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log, /*matrix_units=*/true));
  DeviceSession s(*device);
  const std::vector<std::string> kernels = kernels_of_layer(s, log, 1, 64, false, 32768);
  EXPECT_EQ(std::count(kernels.begin(), kernels.end(), "mma_gate_up_list_w4_t1"), 1);
}

// An odd number of rows become integers, whose places take turns.
TEST(GpuEncoder, StepsAreRunsThatAreKnownFromTheFourthOn) {
  gpu::PlanLog log;
  const auto device = make_gpu_device(gpu::make_plan_trace_platform(log, /*matrix_units=*/true));
  DeviceSession s(*device);
  const Weight w = codes(s, 64, 64);
  const std::vector<Tensor> rows = {s.zeros({9, 64}), s.zeros({9, 64}), s.zeros({9, 64})};
  const Tensor out = s.zeros({9, 64});
  const auto step = [&] {
    for (const Tensor& x : rows) s.encoder().run(ops::Linear{out, x, w});
    (void)s.encoder().submit();
  };
  for (int i = 0; i < 3; ++i) step();
  const uint64_t graphs = log.graphs;
  const uint64_t single_launches = log.single_launches;
  EXPECT_EQ(graphs, 1);
  step();
  EXPECT_EQ(log.graphs, graphs);
  EXPECT_EQ(log.single_launches, single_launches);
}

TEST(Emulator, WhatAKernelLeavesOfAnOverwrittenRangeIsNotANumber) {
  const auto platform = gpu::make_emulator_platform({});
  auto executor = platform->create_executor();
  auto buffer = platform->allocate(64 * sizeof(float), MemoryKind::kDevice);
  ASSERT_TRUE(executor.ok() && buffer.ok());
  const Tensor from = Tensor::view(**buffer, 0, {1, 16}, DType::kF32);
  const Tensor to = Tensor::view(**buffer, 32 * sizeof(float), {1, 16}, DType::kF32);
  gpu::RowsParams p{};
  p.out = gpu::rows_layout(to);
  p.a = gpu::rows_layout(from);
  p.rows = 1;
  p.cols = 10;  // six elements too few
  gpu::Plan plan = gpu::make_plan(gpu::KernelId::copy_rows, {1, 1, 1}, 32);
  plan.set_params(p);
  plan.bind(gpu::range_of(from, gpu::Access::kRead));
  gpu::bind_output(plan, to);
  EXPECT_EQ(plan.bindings[1].access, gpu::Access::kOverwrite);
  (*executor)->record(plan);
  std::vector<float> values(16);
  ASSERT_TRUE(
      (*executor)->read(std::as_writable_bytes(std::span(values)), **buffer, to.offset_bytes).ok());
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(std::isnan(values[i]), i >= 10) << i;
}

TEST(PlanBuilding, AnOutputThatIsAlsoAnInputIsNotOverwrittenFirst) {
  const auto platform = gpu::make_emulator_platform({});
  auto buffer = platform->allocate(1024, MemoryKind::kDevice);
  ASSERT_TRUE(buffer.ok());
  const Tensor x = Tensor::view(**buffer, 0, {2, 8}, DType::kF32);
  gpu::Plan plan = gpu::make_plan(gpu::KernelId::copy_rows, {1, 1, 1}, 32);
  plan.bind(gpu::range_of(x, gpu::Access::kRead));
  gpu::bind_output(plan, x);
  EXPECT_EQ(plan.bindings[1].access, gpu::Access::kReadWrite);
  EXPECT_EQ(plan.bindings[1].size_bytes, 64u);
}

}  // namespace
}  // namespace moeflux
