// Weight: a matrix in some storage format, and its scalar meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/format.h"
#include "tensor/tensor.h"

namespace moeflux {

/// A [rows, cols] matrix as stored: y = W x maps cols inputs to rows outputs. Views only; see
/// WeightStore for owners. The same type says how a matrix lies in a slot or a blob before there is
/// memory for it: its parts then have no buffer, and offsets from the slot's begin.
struct Weight {
  Parts<Tensor> parts;  // parts that the format lacks have rank 0
  QuantFormat format;
  int64_t rows = 0;
  int64_t cols = 0;
  /// Activations that meet this matrix keep their f32: a device that rounds them to narrower
  /// numbers elsewhere must not do so here. Set for routers, where a rounding may choose another
  /// expert.
  bool exact_activations = false;

  bool is_null() const { return parts.codes.is_null(); }
  bool has(PartRole role) const { return parts[role].shape.rank() > 0; }
  /// The sum of all parts.
  uint64_t size_bytes() const;
  /// A laid out matrix where memory begins at `begin` of `buffer`.
  Weight at(Buffer& buffer, size_t begin) const;
  /// The bytes of the parts of a laid out matrix in memory that begins at `begin`.
  Parts<std::span<std::byte>> bytes_in(std::byte* begin) const;

  /// Equal formats, extents and places.
  friend bool operator==(const Weight& a, const Weight& b);
};

/// A matrix of this format without places.
Weight lay_out(const QuantFormat& format, int64_t rows, int64_t cols);
/// A part of that shape without a place.
Tensor unplaced(const Shape& shape, DType dtype);
/// Gives the parts places one after another from `begin` on, each `alignment` aligned, and returns
/// where the next begins.
uint64_t place_parts(Weight& weight, uint64_t begin, uint64_t alignment);

/// Writes a matrix to `to` in `format` from the same numbers in `from_order`. They must not
/// overlap.
void reorder_parts(const QuantFormat& format, int64_t rows, int64_t cols,
                   const Parts<std::span<std::byte>>& to, WeightOrder from_order,
                   const Parts<std::span<std::byte>>& from);

/// The format that a matrix stored so has in memory: the same numbers, row-major.
QuantFormat format_in_memory(const QuantFormat& stored, int64_t rows, int64_t cols);
/// Writes the matrix `from` to `to`, which has its format in memory, in any order. Both are laid
/// out; they must not overlap. Takes memory where formats differ.
void arrange_matrix(const Weight& to, const Parts<std::span<std::byte>>& to_bytes,
                    const Weight& from, const Parts<std::span<std::byte>>& from_bytes);
/// Rows of a matrix whose parts can be arranged by themselves, a whole number of panels: a few
/// hundred KiB. All rows where rows share numbers.
int64_t rows_arranged_at_once(const Weight& to, const Weight& from);
/// arrange_matrix() of `count` rows from `begin` on; pieces as rows_arranged_at_once() says may be
/// arranged at once.
void arrange_rows(const Weight& to, const Parts<std::span<std::byte>>& to_bytes, const Weight& from,
                  const Parts<std::span<std::byte>>& from_bytes, int64_t begin, int64_t count);

/// Decodes row `row` into out[cols], exactly as the format defines it, in f32. Host memory only.
/// This is the definition every backend's decoder is tested against.
void decode_row(const Weight& weight, int64_t row, std::span<float> out);
/// False when nobody knows what the format means, or it does not go with the weight's columns.
bool can_decode(const Weight& weight);

}  // namespace moeflux
