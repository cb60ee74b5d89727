// The CPU says at load what it does not compute, and its encoders do nothing instead.
#include <gtest/gtest.h>

#include <string>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/spaces.h"
#include "backend/encoder.h"

namespace moeflux::cpu {
namespace {

struct Convolution {
  Convolution(Device& device, int64_t taps) {
    buffer = device.allocate(4096, MemoryKind::kDevice).value();
    const auto view = [&](const Shape& shape) {
      return Tensor::view(*buffer, 0, shape, DType::kF32);
    };
    sequences[0] = {1, view({taps - 1, 8})};
    op = {view({1, 8}), view({1, 8}), view({8, taps}), {}, sequences};
  }
  std::unique_ptr<Buffer> buffer;
  StateRows sequences[1];
  ops::CausalConv op;
};

std::unique_ptr<Device> cpu_device() { return make_cpu_device({.threads = 1}).value(); }

template <typename Op>
Status asked(const Device& device, const Op& op) {
  return device.supports({ops::kind_of<Op>(), &op});
}

TEST(CpuSupports, ConvolutionsOfAsManyTapsAsItsKernelsHave) {
  const auto device = cpu_device();
  EXPECT_TRUE(asked(*device, Convolution(*device, 16).op).ok());
  const Status status = asked(*device, Convolution(*device, 17).op);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(status.error().message(), "causal_conv: weight has 17 taps, expected 1 to 16");
}

TEST(CpuSupports, WeightsOfFormatsThatHaveKernelsOrDecoders) {
  const auto device = cpu_device();
  Weight weight{.format = QuantFormat::affine(4, 32, DType::kF32), .rows = 8, .cols = 64};
  EXPECT_TRUE(asked(*device, ops::Linear{{}, {}, weight}).ok());
  weight.format.bits = 7;
  const Status status = asked(*device, ops::Linear{{}, {}, weight});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(status.error().message().find("linear: weight is a [8, 64] weight"), std::string::npos)
      << status.error().message();
}

TEST(CpuSupports, AnEncoderKeepsTheRefusalAndComputesNothingMore) {
  const auto device = cpu_device();
  const auto encoder = device->create_encoder(4096).value();
  const Convolution wide(*device, 17);
  const Convolution fitting(*device, 16);
  float* out = host_ptr<float>(fitting.op.out);
  out[0] = 5.0f;  // the input, the taps and the state are the same bytes
  encoder->run(wide.op);
  encoder->run(fitting.op);
  const Status status = encoder->wait(encoder->submit());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(out[0], 5.0f);
}

TEST(CpuSpaces, AWorkspaceIsFoundAgainByItsType) {
  struct One {
    int value = 1;
  };
  struct Other {
    int value = 2;
  };
  Spaces spaces;
  spaces.of<One>().value = 7;
  EXPECT_EQ(spaces.of<Other>().value, 2);
  EXPECT_EQ(spaces.of<One>().value, 7);
}

}  // namespace
}  // namespace moeflux::cpu
