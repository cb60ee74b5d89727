// What the programs here share: a CPU device, one encoder of it and tensors of noise.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "backend/encoder.h"

namespace moeflux {

class BenchDevice {
 public:
  /// Null, with the reason in `state`, when this machine lacks the instruction set.
  static std::unique_ptr<BenchDevice> open(benchmark::State& state, const std::string& isa,
                                           int threads) {
    auto device = make_cpu_device({.threads = threads, .isa = isa});
    if (!device.ok()) {
      state.SkipWithError(device.error().to_string().c_str());
      return nullptr;
    }
    return std::unique_ptr<BenchDevice>(new BenchDevice(std::move(device).value()));
  }

  Encoder& encoder() { return *encoder_; }

  /// f32 in [-1, 1): the same numbers in every run.
  Tensor noise(const Shape& shape) {
    const auto count = static_cast<size_t>(shape.num_elements());
    auto buffer = device_->allocate(count * sizeof(float), MemoryKind::kDevice);
    buffers_.push_back(std::move(buffer).value());
    auto* x = reinterpret_cast<float*>(buffers_.back()->host_data());
    for (size_t i = 0; i < count; ++i) {
      seed_ = seed_ * 1664525u + 1013904223u;
      x[i] = static_cast<float>(static_cast<int32_t>(seed_)) * 0x1p-31f;
    }
    return Tensor::view(*buffers_.back(), 0, shape, DType::kF32);
  }

 private:
  explicit BenchDevice(std::unique_ptr<Device> device)
      : device_(std::move(device)), encoder_(std::move(device_->create_encoder(0)).value()) {}

  std::unique_ptr<Device> device_;
  std::unique_ptr<Encoder> encoder_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  uint32_t seed_ = 1;
};

/// A counter of `amount` units a call, as a rate in 1e9 of them.
inline benchmark::Counter giga_rate(const benchmark::State& state, double amount) {
  return {1e-9 * amount * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate};
}

}  // namespace moeflux
