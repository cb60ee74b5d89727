#include "experts/expert_table.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"

namespace moeflux {

Tensor ExpertBias::view(Buffer& buffer, size_t slot_offset) const {
  if (size == 0) return {};
  return Tensor::view(buffer, slot_offset + offset, Shape{size}, dtype);
}

uint64_t ExpertLayer::bytes_per_expert() const {
  uint64_t bytes = 0;
  for (const Weight* matrix : {&gate, &up, &down}) {
    bytes += weight_bytes(matrix->format, matrix->rows, matrix->cols);
  }
  for (const ExpertBias* bias : {&gate_bias, &up_bias, &down_bias}) {
    bytes += static_cast<uint64_t>(bias->size * dtype_bits(bias->dtype) / 8);
  }
  return bytes;
}

ExpertWeights ExpertLayer::weights(ExpertId expert, Buffer& buffer, size_t slot_offset) const {
  return {expert,
          gate.at(buffer, slot_offset),
          up.at(buffer, slot_offset),
          down.at(buffer, slot_offset),
          gate_bias.view(buffer, slot_offset),
          up_bias.view(buffer, slot_offset),
          down_bias.view(buffer, slot_offset)};
}

size_t ExpertTable::slot_bytes_max() const {
  size_t bytes = 0;
  for (const ExpertLayer& layer : layers) bytes = std::max(bytes, layer.slot_bytes);
  return bytes;
}

uint64_t ExpertTable::num_experts_total() const {
  uint64_t count = 0;
  for (const ExpertLayer& layer : layers) count += static_cast<uint64_t>(layer.num_experts);
  return count;
}

uint64_t ExpertTable::bytes_total() const {
  uint64_t bytes = 0;
  for (const ExpertLayer& layer : layers) {
    if (layer.num_experts > 0) {
      bytes += static_cast<uint64_t>(layer.num_experts) * layer.bytes_per_expert();
    }
  }
  return bytes;
}

void lay_out_slot(ExpertLayer& layer) {
  constexpr uint64_t kAlignment = 64;  // a cache line: the widest aligned load of any kernel
  size_t end = 0;
  const auto place = [&](uint64_t bytes) {
    const size_t begin = end;
    end = round_up(end + bytes, kAlignment);
    return begin;
  };
  for (Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
    *matrix = lay_out(matrix->format, matrix->rows, matrix->cols);
    end = place_parts(*matrix, end, kAlignment);
  }
  for (ExpertBias* bias : {&layer.gate_bias, &layer.up_bias, &layer.down_bias}) {
    bias->offset = place(static_cast<uint64_t>(bias->size * dtype_bits(bias->dtype) / 8));
  }
  layer.slot_bytes = end;
}

namespace {

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

void arrange_input_major(const ExpertLayer& layer, std::byte* slot, const std::byte* raw) {
  const auto element = static_cast<size_t>(dtype_bits(layer.gate.format.dtype)) / 8;
  const int64_t m = layer.gate.rows;
  const int64_t h = layer.gate.cols;
  const std::byte* down = raw + static_cast<size_t>(2 * m * h) * element;
  const std::byte* in_bias = down + static_cast<size_t>(m * h) * element;
  const std::byte* out_bias = in_bias + static_cast<size_t>(2 * m) * element;
  copy_transposed({slot + layer.gate.parts.codes.offset_bytes, raw, m, h, 2 * m, 2, 0}, element);
  copy_transposed({slot + layer.up.parts.codes.offset_bytes, raw, m, h, 2 * m, 2, 1}, element);
  copy_transposed({slot + layer.down.parts.codes.offset_bytes, down, h, m, h, 1, 0}, element);
  copy_transposed({slot + layer.gate_bias.offset, in_bias, m, 1, 2 * m, 2, 0}, element);
  copy_transposed({slot + layer.up_bias.offset, in_bias, m, 1, 2 * m, 2, 1}, element);
  std::memcpy(slot + layer.down_bias.offset, out_bias, static_cast<size_t>(h) * element);
}

// Rows of `from` in turn to `even` and `odd`, each of `row_bytes`.
void deal_rows(std::span<std::byte> even, std::span<std::byte> odd, const std::byte* from,
               size_t row_bytes) {
  for (size_t at = 0; at < even.size(); at += row_bytes, from += 2 * row_bytes) {
    std::memcpy(even.data() + at, from, row_bytes);
    std::memcpy(odd.data() + at, from + row_bytes, row_bytes);
  }
}

std::span<std::byte> bytes_of(const ExpertBias& bias, std::byte* slot) {
  return {slot + bias.offset, static_cast<size_t>(bias.size * dtype_bits(bias.dtype) / 8)};
}

void arrange_alternate_rows(const ExpertLayer& layer, std::byte* slot, const std::byte* raw) {
  const Parts<std::span<std::byte>> gate = layer.gate.bytes_in(slot);
  const Parts<std::span<std::byte>> up = layer.up.bytes_in(slot);
  const Parts<std::span<std::byte>> down = layer.down.bytes_in(slot);
  for (const PartRole role : kPartRoles) {
    if (!layer.gate.has(role)) continue;
    deal_rows(gate[role], up[role], raw, gate[role].size() / static_cast<size_t>(layer.gate.rows));
    raw += gate[role].size() + up[role].size();
  }
  for (const PartRole role : kPartRoles) {
    std::copy_n(raw, down[role].size(), down[role].begin());
    raw += down[role].size();
  }
  const std::span<std::byte> gate_bias = bytes_of(layer.gate_bias, slot);
  const std::span<std::byte> up_bias = bytes_of(layer.up_bias, slot);
  const std::span<std::byte> down_bias = bytes_of(layer.down_bias, slot);
  deal_rows(gate_bias, up_bias, raw, static_cast<size_t>(dtype_bits(layer.gate_bias.dtype)) / 8);
  std::copy_n(raw + gate_bias.size() + up_bias.size(), down_bias.size(), down_bias.begin());
}

void reorder(const ExpertLayer& layer, std::byte* slot, std::byte* raw) {
  const std::array<const Weight*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Weight& to = *matrices[i];
    reorder_parts(to.format, to.rows, to.cols, to.bytes_in(slot), layer.stored[i].format.order,
                  layer.stored[i].bytes_in(raw));
  }
  const std::array<const ExpertBias*, 3> biases = {&layer.gate_bias, &layer.up_bias,
                                                   &layer.down_bias};
  for (size_t i = 0; i < biases.size(); ++i) {
    const auto bytes = static_cast<size_t>(biases[i]->size * dtype_bits(biases[i]->dtype) / 8);
    std::copy_n(raw + layer.stored_biases[i].offset, bytes, slot + biases[i]->offset);
  }
}

// One matrix at a time, so that both copies of it fit a core's cache.
void arrange_tiles(const Weight& matrix, std::byte* slot, std::byte* scratch) {
  if (matrix.format.order != WeightOrder::kTiled) return;
  Weight stored =
      lay_out(matrix.format.with_order(WeightOrder::kRowMajor), matrix.rows, matrix.cols);
  place_parts(stored, 0, 1);
  const std::span<std::byte> tiles = matrix.bytes_in(slot).codes;
  std::memcpy(scratch, tiles.data(), tiles.size());
  reorder_parts(matrix.format, matrix.rows, matrix.cols, matrix.bytes_in(slot),
                WeightOrder::kRowMajor, stored.bytes_in(scratch));
}

}  // namespace

void arrange_slot(const ExpertLayer& layer, std::span<std::byte> slot,
                  std::span<std::byte> scratch) {
  switch (layer.arrangement) {
    case ExpertArrangement::kAsStored:
      return;
    case ExpertArrangement::kRowMajorParts:
      MF_CHECK(scratch.size() >= layer.slot_bytes && slot.size() >= layer.slot_bytes);
      for (const Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
        arrange_tiles(*matrix, slot.data(), scratch.data());
      }
      return;
    case ExpertArrangement::kInputMajorInterleaved:
      MF_CHECK(scratch.size() >= layer.slot_bytes && slot.size() >= layer.slot_bytes);
      std::memcpy(scratch.data(), slot.data(), layer.slot_bytes);
      arrange_input_major(layer, slot.data(), scratch.data());
      return;
    case ExpertArrangement::kAlternateRows:
      MF_CHECK(scratch.size() >= layer.slot_bytes && slot.size() >= layer.slot_bytes);
      std::memcpy(scratch.data(), slot.data(), layer.slot_bytes);
      arrange_alternate_rows(layer, slot.data(), scratch.data());
      return;
    case ExpertArrangement::kReordered:
      MF_CHECK(scratch.size() >= layer.slot_bytes && slot.size() >= layer.slot_bytes);
      std::memcpy(scratch.data(), slot.data(), layer.slot_bytes);
      reorder(layer, slot.data(), scratch.data());
      return;
  }
  __builtin_unreachable();
}

}  // namespace moeflux
