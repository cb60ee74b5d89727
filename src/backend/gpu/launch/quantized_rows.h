// Activations as integers of products on matrix units, kept for the products that follow.
#pragma once

#include <array>
#include <cstddef>

#include "backend/gpu/launch/device_tables.h"
#include "backend/gpu/launch/plan.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

/// The tensor that became these integers; null when its memory may hold something else since.
struct QuantizedRows {
  Tensor x;
  uint32_t order = 0;  // of their bytes (mma_params.h)
  Binding integers;
  Binding sums;
};

/// The last two rows that became integers: a layer's input, and what networks make in between.
class QuantizedCache {
 public:
  explicit QuantizedCache(Platform& platform) : spaces_{Workspace(platform), Workspace(platform)} {}

  /// Null if x did not become such integers, or may have changed since.
  const QuantizedRows* find(const Tensor& x, uint32_t order) const;
  /// Takes the place of the older ones, with room for x to be written. Fails with
  /// kResourceExhausted.
  Result<const QuantizedRows*> add(const Tensor& x, uint32_t order);
  /// Says that these are integers of x after a launch that has written both.
  void keep(const QuantizedRows& rows, const Tensor& x);
  /// A launch that writes to x makes its integers old.
  void note(const Plan& plan);
  void clear();

 private:
  std::array<QuantizedRows, 2> rows_;
  std::array<Workspace, 2> spaces_;
  size_t next_ = 0;
};

/// Bytes for rows of activations as integers and for their sums; where the sums begin.
size_t quantized_bytes(uint64_t rows, uint64_t cols, uint32_t order);
size_t quantized_sums_begin(uint64_t rows, uint64_t cols);

}  // namespace moeflux::gpu
