// A device, one encoder of it and tensors, and the start of a program: shared by all programs here.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/encoder.h"
#include "devices/open_device.h"
#include "quant/weight.h"
#include "tensor/dtype.h"

namespace moeflux {

class BenchDevice {
 public:
  /// Null, with the reason in `state`, when this machine lacks the device or the instruction set.
  static std::unique_ptr<BenchDevice> open(benchmark::State& state, const DeviceOptions& options) {
    auto device = open_device(options);
    if (!device.ok()) {
      state.SkipWithError(device.error().to_string().c_str());
      return nullptr;
    }
    return std::unique_ptr<BenchDevice>(new BenchDevice(std::move(device).value()));
  }

  Encoder& encoder() { return *encoder_; }

  /// f32 in [-1, 1): the same numbers in every run.
  Tensor noise(const Shape& shape) {
    const std::vector<float> values = numbers(shape);
    return holding(shape, DType::kF32, std::as_bytes(std::span(values)));
  }
  /// The same in f16, as keys and values lie in caches.
  Tensor half_noise(const Shape& shape) {
    std::vector<F16> halves;
    for (const float value : numbers(shape)) halves.push_back(to_f16(value));
    return holding(shape, DType::kF16, std::as_bytes(std::span(halves)));
  }

  Tensor ints(const Shape& shape, std::span<const int32_t> values) {
    return holding(shape, DType::kI32, std::as_bytes(values));
  }

  /// Bytes that are codes of any width, and 1.2e-2 or so as numbers of any type.
  Tensor filled(const Shape& shape, DType dtype) {
    const std::vector<std::byte> bytes(bytes_of(shape, dtype), std::byte{0x3c});
    return holding(shape, dtype, bytes);
  }
  /// A matrix of such bytes.
  Weight filled_weight(const QuantFormat& format, int64_t rows, int64_t cols) {
    Weight w = lay_out(format, rows, cols);
    for (const PartRole role : kPartRoles) {
      if (w.has(role)) w.parts[role] = filled(w.parts[role].shape, w.parts[role].dtype);
    }
    return w;
  }

 private:
  explicit BenchDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), encoder_(std::move(device_->create_encoder(0)).value()) {}

  std::vector<float> numbers(const Shape& shape) {
    std::vector<float> x(static_cast<size_t>(shape.num_elements()));
    for (float& value : x) {
      seed_ = seed_ * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<int32_t>(seed_)) * 0x1p-31f;
    }
    return x;
  }
  static size_t bytes_of(const Shape& shape, DType dtype) {
    return static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
  }
  Tensor holding(const Shape& shape, DType dtype, std::span<const std::byte> bytes) {
    buffers_.push_back(std::move(device_->allocate(bytes.size(), MemoryKind::kDevice)).value());
    MF_CHECK(device_->upload(*buffers_.back(), 0, bytes).ok());
    return Tensor::view(*buffers_.back(), 0, shape, dtype);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  uint32_t seed_ = 1;
};

/// A counter of `amount` units a call, as a rate in 1e9 of them.
inline benchmark::Counter giga_rate(const benchmark::State& state, double amount) {
  return {1e-9 * amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate};
}

/// main() of a program that has registered its benchmarks.
inline int run_registered(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace moeflux
