#include "experts/expert_arrangement.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace moeflux {
namespace {

constexpr int64_t kDown = 2;

const Weight& matrix_of(const ExpertLayer& layer, int64_t i) {
  return *std::array{&layer.gate, &layer.up, &layer.down}[static_cast<size_t>(i)];
}
const ExpertBias& bias_of(const ExpertLayer& layer, size_t i) {
  return *std::array{&layer.gate_bias, &layer.up_bias, &layer.down_bias}[i];
}

size_t element_bytes(const ExpertBias& bias) {
  return static_cast<size_t>(dtype_bits(bias.dtype)) / 8;
}

std::span<std::byte> bytes_of(const ExpertBias& bias, std::byte* slot) {
  return {slot + bias.offset, static_cast<size_t>(bias.size) * element_bytes(bias)};
}

// to[r][c] = from[c][r * step + first]: `from` has rows of `from_cols` elements.
struct TransposedCopy {
  std::byte* to;
  const std::byte* from;
  int64_t rows;
  int64_t cols;
  int64_t from_cols;
  int64_t step;
  int64_t first;
};

void copy_transposed(const TransposedCopy& c, size_t element_bytes) {
  for (int64_t row = 0; row < c.rows; ++row) {
    for (int64_t col = 0; col < c.cols; ++col) {
      std::memcpy(
          c.to + static_cast<size_t>(row * c.cols + col) * element_bytes,
          c.from + static_cast<size_t>(col * c.from_cols + row * c.step + c.first) * element_bytes,
          element_bytes);
    }
  }
}

void input_major(const ExpertLayer& layer, const LandedExpert& from, std::byte* slot,
                 int64_t task) {
  const auto element = static_cast<size_t>(dtype_bits(layer.gate.format.dtype)) / 8;
  const int64_t m = layer.gate.rows;
  const int64_t h = layer.gate.cols;
  const size_t down_at = static_cast<size_t>(2 * m * h) * element;
  const size_t in_bias_at = down_at + static_cast<size_t>(m * h) * element;
  const size_t out_bias_at = in_bias_at + static_cast<size_t>(2 * m) * element;
  if (task == kDown) {
    std::byte* to = slot + layer.down.parts.codes.offset_bytes;
    return copy_transposed({to, from.at(down_at), h, m, h, 1, 0}, element);
  }
  if (task < kDown) {
    std::byte* to = slot + matrix_of(layer, task).parts.codes.offset_bytes;
    if (layer.arrangement == ExpertArrangement::kInputMajorHalves) {
      return copy_transposed({to, from.at(0), m, h, 2 * m, 1, task * m}, element);
    }
    return copy_transposed({to, from.at(0), m, h, 2 * m, 2, task}, element);
  }
  if (layer.gate_bias.size == 0) return;
  const std::byte* in_bias = from.at(in_bias_at);
  copy_transposed({slot + layer.gate_bias.offset, in_bias, m, 1, 2 * m, 2, 0}, element);
  copy_transposed({slot + layer.up_bias.offset, in_bias, m, 1, 2 * m, 2, 1}, element);
  std::memcpy(slot + layer.down_bias.offset, from.at(out_bias_at),
              static_cast<size_t>(h) * element);
}

// Every second row of `from`, from the first or the second on.
void take_rows(std::span<std::byte> to, const std::byte* from, size_t row_bytes, int64_t first) {
  from += static_cast<size_t>(first) * row_bytes;
  for (size_t at = 0; at < to.size(); at += row_bytes, from += 2 * row_bytes) {
    std::memcpy(to.data() + at, from, row_bytes);
  }
}

/// Rows of a matrix that arrives in turn with another, from row `first` of both on. Parts arrive
/// one after another, each with the rows of both.
void take_matrix(const Weight& to, const Parts<std::span<std::byte>>& slot, const Weight& stored,
                 const LandedExpert& from, int64_t first) {
  // Pieces that stay in a cache between the two passes over them.
  constexpr int64_t kRows = 32;
  const int64_t most = std::min(kRows, to.rows);
  std::vector<std::byte> memory(weight_bytes(stored.format, most, to.cols) +
                                kPartRoles.size() * 64);
  for (int64_t row = 0; row < to.rows; row += most) {
    const int64_t rows = std::min(most, to.rows - row);
    Weight piece = lay_out(stored.format, rows, to.cols);
    place_parts(piece, 0, 64);
    const Parts<std::span<std::byte>> taken = piece.bytes_in(memory.data());
    Parts<std::span<std::byte>> made;
    size_t part = 0;
    for (const PartRole role : kPartRoles) {
      if (stored.has(role)) {
        const size_t row_bytes = taken[role].size() / static_cast<size_t>(rows);
        take_rows(taken[role], from.at(part) + static_cast<size_t>(2 * row) * row_bytes, row_bytes,
                  first);
        part += static_cast<size_t>(2 * to.rows) * row_bytes;
      }
      if (to.has(role)) {
        const size_t row_bytes = slot[role].size() / static_cast<size_t>(to.rows);
        made[role] = slot[role].subspan(static_cast<size_t>(row) * row_bytes,
                                        static_cast<size_t>(rows) * row_bytes);
      }
    }
    arrange_matrix(lay_out(to.format, rows, to.cols), made, piece, taken);
  }
}

void alternate_rows(const ExpertLayer& layer, const LandedExpert& from, std::byte* slot,
                    int64_t task) {
  const auto bytes_of_stored = [&](size_t i) {
    const Weight& stored = layer.stored[i];
    return static_cast<size_t>(weight_bytes(stored.format, stored.rows, stored.cols));
  };
  if (task < kDown) {
    const Weight& to = matrix_of(layer, task);
    const Weight& stored = layer.stored[static_cast<size_t>(task)];
    return take_matrix(to, to.bytes_in(slot), stored, from, task);
  }
  const size_t down_at = 2 * bytes_of_stored(0);
  if (task == kDown) {
    Weight stored = layer.stored[kDown];
    place_parts(stored, down_at, 1);
    return arrange_matrix(layer.down, layer.down.bytes_in(slot), stored, from.parts_of(stored));
  }
  if (layer.gate_bias.size == 0) return;
  const size_t at = down_at + bytes_of_stored(kDown);
  const std::span<std::byte> gate_bias = bytes_of(layer.gate_bias, slot);
  const std::span<std::byte> down_bias = bytes_of(layer.down_bias, slot);
  take_rows(gate_bias, from.at(at), element_bytes(layer.gate_bias), 0);
  take_rows(bytes_of(layer.up_bias, slot), from.at(at), element_bytes(layer.up_bias), 1);
  std::copy_n(from.at(at + 2 * gate_bias.size()), down_bias.size(), down_bias.begin());
}

/// Biases that arrive at the offsets of `arriving`.
void copy_biases(const ExpertLayer& layer, const std::array<ExpertBias, 3>& arriving,
                 const LandedExpert& from, std::byte* slot) {
  for (size_t i = 0; i < arriving.size(); ++i) {
    const std::span<std::byte> to = bytes_of(bias_of(layer, i), slot);
    if (!to.empty()) std::copy_n(from.at(arriving[i].offset), to.size(), to.begin());
  }
}

void reordered(const ExpertLayer& layer, const LandedExpert& from, std::byte* slot, int64_t task) {
  if (task <= kDown) {
    const Weight& to = matrix_of(layer, task);
    const Weight& stored = layer.stored[static_cast<size_t>(task)];
    if (to.rows == 0) return;
    return arrange_matrix(to, to.bytes_in(slot), stored, from.parts_of(stored));
  }
  copy_biases(layer, layer.stored_biases, from, slot);
}

void row_major_parts(const ExpertLayer& layer, const LandedExpert& from, std::byte* slot,
                     int64_t task) {
  if (task > kDown) {
    return copy_biases(layer, {layer.gate_bias, layer.up_bias, layer.down_bias}, from, slot);
  }
  const Weight& matrix = matrix_of(layer, task);
  if (matrix.rows == 0) return;
  if (matrix.format.order == WeightOrder::kTiled) {
    Weight stored =
        lay_out(matrix.format.with_order(WeightOrder::kRowMajor), matrix.rows, matrix.cols);
    place_parts(stored, matrix.parts.codes.offset_bytes, 1);
    return reorder_parts(matrix.format, matrix.rows, matrix.cols, matrix.bytes_in(slot),
                         WeightOrder::kRowMajor, from.parts_of(stored));
  }
  const Parts<std::span<std::byte>> to = matrix.bytes_in(slot);
  const Parts<std::span<std::byte>> parts = from.parts_of(matrix);
  for (const PartRole role : kPartRoles) {
    if (matrix.has(role)) std::copy_n(parts[role].data(), to[role].size(), to[role].begin());
  }
}

}  // namespace

Parts<std::span<std::byte>> LandedExpert::parts_of(const Weight& placed) const {
  Parts<std::span<std::byte>> parts;
  for (const PartRole role : kPartRoles) {
    const Tensor& part = placed.parts[role];
    if (placed.has(role)) parts[role] = {at(part.offset_bytes), part.size_bytes()};
  }
  return parts;
}

void arrange(const ExpertLayer& layer, const LandedExpert& from, std::span<std::byte> slot,
             int64_t task) {
  MF_CHECK(slot.size() >= layer.slot_bytes && task >= 0 && task < kArrangeTasks);
  switch (layer.arrangement) {
    case ExpertArrangement::kAsStored:
    case ExpertArrangement::kInPlace:
      MF_CHECK(false && "these are read into their slots");
      return;
    case ExpertArrangement::kRowMajorParts:
      return row_major_parts(layer, from, slot.data(), task);
    case ExpertArrangement::kInputMajorInterleaved:
    case ExpertArrangement::kInputMajorHalves:
      return input_major(layer, from, slot.data(), task);
    case ExpertArrangement::kAlternateRows:
      return alternate_rows(layer, from, slot.data(), task);
    case ExpertArrangement::kReordered:
      return reordered(layer, from, slot.data(), task);
  }
  __builtin_unreachable();
}

}  // namespace moeflux
