// One encoder of a device and the tensors a test puts there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backend/device.h"
#include "backend/encoder.h"

namespace moeflux::testing {

class DeviceSession {
 public:
  explicit DeviceSession(Device& device, size_t scratch_bytes = size_t{64} << 20)
      : device_(device) {
    auto encoder = device.create_encoder(scratch_bytes);
    EXPECT_TRUE(encoder.ok()) << (encoder.ok() ? "" : encoder.error().to_string());
    if (encoder.ok()) encoder_ = std::move(encoder).value();
  }

  Encoder& encoder() { return *encoder_; }
  Tensor floats(const Shape& shape, std::span<const float> values) {
    return filled(shape, DType::kF32, std::as_bytes(values));
  }
  Tensor ints(const Shape& shape, std::span<const int32_t> values) {
    return filled(shape, DType::kI32, std::as_bytes(values));
  }
  Tensor zeros(const Shape& shape, DType dtype = DType::kF32) {
    const auto bytes =
        static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(dtype_bits(dtype)) / 8;
    auto buffer = device_.allocate(bytes, MemoryKind::kDevice);
    EXPECT_TRUE(buffer.ok()) << (buffer.ok() ? "" : buffer.error().to_string());
    buffers_.push_back(std::move(buffer).value());
    return Tensor::view(*buffers_.back(), 0, shape, dtype);
  }
  /// A [rows, cols] matrix of plain f32.
  Weight weight(int64_t rows, int64_t cols, std::span<const float> values) {
    Weight w;
    w.parts.codes = floats({rows, cols}, values);
    w.format = QuantFormat::plain(DType::kF32);
    w.rows = rows;
    w.cols = cols;
    return w;
  }

  std::vector<float> read(const Tensor& tensor) { return read_as<float>(tensor); }
  std::vector<int32_t> read_ints(const Tensor& tensor) { return read_as<int32_t>(tensor); }

 private:
  Tensor filled(const Shape& shape, DType dtype, std::span<const std::byte> values) {
    const Tensor tensor = zeros(shape, dtype);
    encoder_->write(tensor, values);
    return tensor;
  }
  template <typename T>
  std::vector<T> read_as(const Tensor& tensor) {
    std::vector<T> values(static_cast<size_t>(tensor.num_elements()));
    const Status done = encoder_->read(std::as_writable_bytes(std::span(values)), tensor);
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().to_string());
    return values;
  }

  Device& device_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace moeflux::testing
