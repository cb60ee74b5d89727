// The storage format of a matrix, and its parts. Each format's meaning is in formats/<format>; what
// all of them have in common is FormatTraits (format_traits.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tensor/dtype.h"

namespace moeflux {

struct FormatTraits;
// Two formats that much of the project makes itself: an array of F32, F16 or BF16, and MLX groups,
// w = scale * code + bias (formats/affine.h).
extern const FormatTraits plain_format;
extern const FormatTraits affine_format;

/// How the parts of an affine matrix lie in memory.
enum class WeightOrder : uint8_t {
  kRowMajor,  // the parts apart, row after row: checkpoints
  kTiled,     // formats/tiled.h
};

/// One concrete format. Two weights with equal formats are decoded by the same kernel.
struct QuantFormat {
  const FormatTraits* kind = &plain_format;
  DType dtype = DType::kF32;  // of the elements (plain) or of scales and biases (affine)
  int bits = 0;               // affine: 2, 3, 4, 5, 6 or 8
  int group_size = 0;         // affine: 32, 64 or 128; others: columns that share a scale
  WeightOrder order = WeightOrder::kRowMajor;  // affine
  bool outer_scale = false;  // formats of blocks: one more factor, an f32 of the matrix
  int group_rows = 0;        // rows that share scales, where that is more than one
  uint8_t variant = 0;       // for the format's own use: its file says

  static QuantFormat plain(DType dtype) { return {&plain_format, dtype, 0, 0, {}}; }
  static QuantFormat affine(int bits, int group_size, DType scale_dtype) {
    return {&affine_format, scale_dtype, bits, group_size, {}};
  }
  /// A format of which nothing can be chosen.
  static QuantFormat of(const FormatTraits& kind) { return {&kind, DType::kU8, 0, 0, {}}; }

  constexpr bool is_plain() const { return kind == &plain_format; }
  constexpr bool is_affine() const { return kind == &affine_format; }
  /// The same numbers in another order.
  QuantFormat with_order(WeightOrder to) const {
    QuantFormat format = *this;
    format.order = to;
    return format;
  }
  /// The same with a factor of the whole matrix beside it.
  QuantFormat with_outer_scale() const {
    QuantFormat format = *this;
    format.outer_scale = true;
    return format;
  }
  /// "bf16", "affine-4/64", "affine-4/64 tiled".
  std::string to_string() const;
  friend bool operator==(const QuantFormat&, const QuantFormat&) = default;
};

/// The purpose of a part of a stored matrix. Stored matrices have their parts in this order.
enum class PartRole : uint8_t {
  kCodes,       // of the elements: plain numbers and tiles, which hold everything, as well
  kScales,      // a factor for each group of codes
  kOffsets,     // added to a group: MLX's biases, zero points
  kOuterScale,  // a factor for scales: one for the matrix or one a row
  kColumnMap,   // the group of each column
};
inline constexpr std::array kPartRoles = {PartRole::kCodes, PartRole::kScales, PartRole::kOffsets,
                                          PartRole::kOuterScale, PartRole::kColumnMap};

/// One T for each part that a matrix may have.
template <typename T>
struct Parts {
  T codes{};
  T scales{};
  T offsets{};
  T outer_scale{};
  T column_map{};

  T& operator[](PartRole role) {
    switch (role) {
      case PartRole::kCodes:
        return codes;
      case PartRole::kScales:
        return scales;
      case PartRole::kOffsets:
        return offsets;
      case PartRole::kOuterScale:
        return outer_scale;
      case PartRole::kColumnMap:
        return column_map;
    }
    __builtin_unreachable();
  }
  const T& operator[](PartRole role) const { return const_cast<Parts&>(*this)[role]; }
  friend bool operator==(const Parts&, const Parts&) = default;
};

/// Bytes of each part of one [rows, cols] matrix, without padding; 0 for those it does not have.
Parts<uint64_t> part_bytes(const QuantFormat& format, int64_t rows, int64_t cols);
/// Their sum.
uint64_t weight_bytes(const QuantFormat& format, int64_t rows, int64_t cols);

/// True when the format's numbers, its dtype and cols go together; an order that rows do not fit is
/// the caller's to avoid.
bool is_valid(const QuantFormat& format, int64_t cols);

}  // namespace moeflux
