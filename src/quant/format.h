// Which storage formats of weights exist. Each one's meaning is in formats/<format>.h.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace moeflux {

enum class QuantKind : uint8_t {
  kPlain,   // an array of F32, F16 or BF16
  kAffine,  // MLX groups: w = scale * code + bias, formats/affine.h
};

/// How the parts of an affine matrix lie in memory.
enum class WeightOrder : uint8_t {
  kRowMajor,  // codes, scales and biases apart, row after row: checkpoints
  kTiled,     // formats/tiled.h
};

/// One concrete format. Two weights with equal formats are decoded by the same kernel.
struct QuantFormat {
  QuantKind kind = QuantKind::kPlain;
  DType dtype = DType::kF32;  // of the elements (plain) or of scales and biases (affine)
  int bits = 0;               // affine: 2, 3, 4, 5, 6 or 8
  int group_size = 0;         // affine: 32, 64 or 128
  WeightOrder order = WeightOrder::kRowMajor;  // affine

  static QuantFormat plain(DType dtype) { return {QuantKind::kPlain, dtype, 0, 0, {}}; }
  static QuantFormat affine(int bits, int group_size, DType scale_dtype) {
    return {QuantKind::kAffine, scale_dtype, bits, group_size, {}};
  }
  /// The same numbers in another order.
  QuantFormat with_order(WeightOrder to) const {
    QuantFormat format = *this;
    format.order = to;
    return format;
  }
  /// "bf16", "affine-4/64", "affine-4/64 tiled".
  std::string to_string() const;
  friend bool operator==(const QuantFormat&, const QuantFormat&) = default;
};

/// Bytes of each part of one [rows, cols] matrix, without padding.
struct WeightBytes {
  uint64_t data = 0;
  uint64_t scales = 0;  // 0 for plain, and for tiles, which hold everything in data
  uint64_t biases = 0;
  uint64_t total() const { return data + scales + biases; }
};
WeightBytes weight_bytes(const QuantFormat& format, int64_t rows, int64_t cols);

/// True when bits, group size, dtype and cols go together, of a kind that exists; an order that
/// rows do not fit is the caller's to avoid.
bool is_valid(const QuantFormat& format, int64_t cols);

}  // namespace moeflux
