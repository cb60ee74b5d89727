#include "backend/trace/trace_encoder.h"

#include <gtest/gtest.h>

#include "backend/host_buffer.h"
#include "backend/trace/trace_device.h"

namespace moeflux {
namespace {

TEST(TraceEncoder, ScratchIsAStackWhosePeakIsKept) {
  TraceEncoder e;
  const size_t empty = e.scratch_mark();
  {
    const ScratchScope outer(e);
    (void)e.scratch({100}, DType::kF32);
    {
      const ScratchScope inner(e);
      (void)e.scratch({1000}, DType::kF32);
    }
    (void)e.scratch({10}, DType::kF32);
  }
  EXPECT_EQ(e.scratch_mark(), empty);
  EXPECT_GE(e.scratch_bytes_max(), 4400u);
  EXPECT_LT(e.scratch_bytes_max(), 4400u + 2 * 64);
}

TEST(TraceEncoder, MeasuresWhatAnArenaNeeds) {
  const std::vector<int64_t> sizes = {1, 17, 16, 255, 3, 64};
  TraceEncoder e;
  for (const int64_t n : sizes) (void)e.scratch({n}, DType::kF32);
  auto arena = ScratchArena::create(e.scratch_bytes_max());
  ASSERT_TRUE(arena.ok());
  size_t last_end = 0;
  for (const int64_t n : sizes) {
    const Tensor tensor = arena->take({n}, DType::kF32);
    EXPECT_EQ(tensor.offset_bytes % 64, 0u);
    EXPECT_GE(tensor.offset_bytes, last_end);
    last_end = tensor.offset_bytes + tensor.size_bytes();
  }
  EXPECT_LE(last_end, e.scratch_bytes_max());
}

TEST(TraceEncoder, LinearCountsBytesAndMultiplyAdds) {
  const auto buffer = make_unbacked_buffer(size_t{1} << 40);
  Weight weight;
  weight.format = QuantFormat::affine(4, 64, DType::kBf16);
  weight.rows = 512;
  weight.cols = 256;
  weight.parts.codes = Tensor::view(*buffer, 0, {512, 32}, DType::kU32);
  weight.parts.scales = Tensor::view(*buffer, 0, {512, 4}, DType::kBf16);
  weight.parts.offsets = weight.parts.scales;
  TraceEncoder e;
  const Tensor x = e.scratch({3, 256}, DType::kF32);
  const Tensor out = e.scratch({3, 512}, DType::kF32);
  e.run(ops::Linear{out, x, weight});
  EXPECT_EQ(e.weight_bytes(), 512u * (256 / 2 + 4 * 2 + 4 * 2));
  EXPECT_EQ(e.multiply_adds(), 3u * 512 * 256);
  ASSERT_EQ(e.ops().size(), 1u);
  EXPECT_NE(e.to_string().find("linear"), std::string::npos);
  EXPECT_NE(e.to_string().find("affine-4/64"), std::string::npos);
}

TEST(TraceEncoder, ReadGivesZeros) {
  TraceEncoder e;
  std::vector<int32_t> ids = {7, 7, 7};
  EXPECT_TRUE(e.read(std::as_writable_bytes(std::span(ids)), e.scratch({3}, DType::kI32)).ok());
  EXPECT_EQ(ids, (std::vector<int32_t>{0, 0, 0}));
}

TEST(TraceDevice, MemoryCostsNothing) {
  const auto device = make_trace_device();
  const auto buffer = device->allocate(size_t{1} << 50, MemoryKind::kDevice);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ((*buffer)->size_bytes(), size_t{1} << 50);
  EXPECT_EQ((*buffer)->host_data(), nullptr);
}

}  // namespace
}  // namespace moeflux
