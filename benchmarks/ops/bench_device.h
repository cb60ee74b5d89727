// A CPU device, one encoder of it and tensors, and the start of a program: shared by all programs
// here.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/encoder.h"

namespace moeflux {

class BenchDevice {
 public:
  /// Null, with the reason in `state`, when this machine lacks the instruction set.
  static std::unique_ptr<BenchDevice> open(benchmark::State& state, const CpuOptions& options) {
    auto device = make_cpu_device(options);
    if (!device.ok()) {
      state.SkipWithError(device.error().to_string().c_str());
      return nullptr;
    }
    return std::unique_ptr<BenchDevice>(new BenchDevice(std::move(device).value()));
  }

  Encoder& encoder() { return *encoder_; }

  /// f32 in [-1, 1): the same numbers in every run.
  Tensor noise(const Shape& shape) {
    const Tensor tensor = allocate(shape, DType::kF32);
    auto* x = reinterpret_cast<float*>(buffers_.back()->host_data());
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      seed_ = seed_ * 1664525u + 1013904223u;
      x[i] = static_cast<float>(static_cast<int32_t>(seed_)) * 0x1p-31f;
    }
    return tensor;
  }

  /// Bytes that are codes of any width, and 1.2e-2 or so as numbers of any type.
  Tensor filled(const Shape& shape, DType dtype) {
    const Tensor tensor = allocate(shape, dtype);
    std::memset(buffers_.back()->host_data(), 0x3c, buffers_.back()->size_bytes());
    return tensor;
  }

 private:
  explicit BenchDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), encoder_(std::move(device_->create_encoder(0)).value()) {}

  Tensor allocate(const Shape& shape, DType dtype) {
    const auto bytes = static_cast<size_t>(shape.num_elements() * dtype_bits(dtype) / 8);
    buffers_.push_back(std::move(device_->allocate(bytes, MemoryKind::kDevice)).value());
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
