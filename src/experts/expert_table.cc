#include "experts/expert_table.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "quant/formats/tiled.h"

namespace moeflux {

Weight ExpertMatrix::view(Buffer& buffer, size_t slot_offset) const {
  Weight weight;
  weight.format = format;
  weight.rows = rows;
  weight.cols = cols;
  switch (format.kind) {
    case QuantKind::kPlain:
      weight.data =
          Tensor::view(buffer, slot_offset + data_offset, Shape{rows, cols}, format.dtype);
      return weight;
    case QuantKind::kAffine: {
      if (format.order == WeightOrder::kTiled) {
        const auto bytes = static_cast<int64_t>(weight.size_bytes());
        weight.data = Tensor::view(buffer, slot_offset + data_offset, Shape{bytes}, DType::kU8);
        return weight;
      }
      const int64_t groups = cols / format.group_size;
      weight.data = Tensor::view(buffer, slot_offset + data_offset,
                                 Shape{rows, cols * format.bits / 32}, DType::kU32);
      weight.scales =
          Tensor::view(buffer, slot_offset + scales_offset, Shape{rows, groups}, format.dtype);
      weight.biases =
          Tensor::view(buffer, slot_offset + biases_offset, Shape{rows, groups}, format.dtype);
      return weight;
    }
  }
  __builtin_unreachable();
}

ExpertMatrix to_matrix(const PackedMatrix& packed) {
  return {packed.format,      packed.rows,          packed.cols,
          packed.data_offset, packed.scales_offset, packed.biases_offset};
}

MatrixParts ExpertMatrix::parts(std::byte* slot) const {
  const WeightBytes bytes = weight_bytes(format, rows, cols);
  return {{slot + data_offset, bytes.data},
          {slot + scales_offset, bytes.scales},
          {slot + biases_offset, bytes.biases}};
}

Tensor ExpertBias::view(Buffer& buffer, size_t slot_offset) const {
  if (size == 0) return {};
  return Tensor::view(buffer, slot_offset + offset, Shape{size}, dtype);
}

uint64_t ExpertLayer::bytes_per_expert() const {
  uint64_t bytes = 0;
  for (const ExpertMatrix* matrix : {&gate, &up, &down}) {
    bytes += weight_bytes(matrix->format, matrix->rows, matrix->cols).total();
  }
  for (const ExpertBias* bias : {&gate_bias, &up_bias, &down_bias}) {
    bytes += static_cast<uint64_t>(bias->size * dtype_bits(bias->dtype) / 8);
  }
  return bytes;
}

ExpertWeights ExpertLayer::weights(ExpertId expert, Buffer& buffer, size_t slot_offset) const {
  return {expert,
          gate.view(buffer, slot_offset),
          up.view(buffer, slot_offset),
          down.view(buffer, slot_offset),
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
  for (ExpertMatrix* matrix : {&layer.gate, &layer.up, &layer.down}) {
    const WeightBytes bytes = weight_bytes(matrix->format, matrix->rows, matrix->cols);
    matrix->data_offset = place(bytes.data);
    matrix->scales_offset = place(bytes.scales);
    matrix->biases_offset = place(bytes.biases);
  }
  for (ExpertBias* bias : {&layer.gate_bias, &layer.up_bias, &layer.down_bias}) {
    bias->offset = place(static_cast<uint64_t>(bias->size * dtype_bits(bias->dtype) / 8));
  }
  layer.slot_bytes = end;
}

void reorder_matrix(const ExpertMatrix& matrix, const MatrixParts& to, WeightOrder from_order,
                    const MatrixParts& from) {
  const QuantFormat& format = matrix.format;
  if (format.order == from_order) {
    std::copy(from.data.begin(), from.data.end(), to.data.begin());
    std::copy(from.scales.begin(), from.scales.end(), to.scales.begin());
    std::copy(from.biases.begin(), from.biases.end(), to.biases.begin());
  } else if (format.order == WeightOrder::kTiled) {
    tiled::tile(to.data, {from.data, from.scales, from.biases}, format, matrix.rows, matrix.cols);
  } else {
    tiled::untile(to.data, to.scales, to.biases, from.data, format, matrix.rows, matrix.cols);
  }
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
  copy_transposed({slot + layer.gate.data_offset, raw, m, h, 2 * m, 2, 0}, element);
  copy_transposed({slot + layer.up.data_offset, raw, m, h, 2 * m, 2, 1}, element);
  copy_transposed({slot + layer.down.data_offset, down, h, m, h, 1, 0}, element);
  copy_transposed({slot + layer.gate_bias.offset, in_bias, m, 1, 2 * m, 2, 0}, element);
  copy_transposed({slot + layer.up_bias.offset, in_bias, m, 1, 2 * m, 2, 1}, element);
  std::memcpy(slot + layer.down_bias.offset, out_bias, static_cast<size_t>(h) * element);
}

void reorder(const ExpertLayer& layer, std::byte* slot, std::byte* raw) {
  const std::array<const ExpertMatrix*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
  for (size_t i = 0; i < matrices.size(); ++i) {
    reorder_matrix(*matrices[i], matrices[i]->parts(slot), layer.stored[i].format.order,
                   layer.stored[i].parts(raw));
  }
  const std::array<const ExpertBias*, 3> biases = {&layer.gate_bias, &layer.up_bias,
                                                   &layer.down_bias};
  for (size_t i = 0; i < biases.size(); ++i) {
    const auto bytes = static_cast<size_t>(biases[i]->size * dtype_bits(biases[i]->dtype) / 8);
    std::copy_n(raw + layer.stored_biases[i].offset, bytes, slot + biases[i]->offset);
  }
}

// One matrix at a time, so that both copies of it fit a core's cache.
void arrange_tiles(const ExpertMatrix& matrix, std::byte* slot, std::byte* scratch) {
  if (matrix.format.order != WeightOrder::kTiled) return;
  const QuantFormat stored = matrix.format.with_order(WeightOrder::kRowMajor);
  const WeightBytes bytes = weight_bytes(stored, matrix.rows, matrix.cols);
  std::byte* tiles = slot + matrix.data_offset;
  std::memcpy(scratch, tiles, bytes.total());
  const std::span<const std::byte> parts(scratch, bytes.total());
  tiled::tile({tiles, bytes.total()},
              {.codes = parts.first(bytes.data),
               .scales = parts.subspan(bytes.data, bytes.scales),
               .biases = parts.last(bytes.biases)},
              stored, matrix.rows, matrix.cols);
}

}  // namespace

void arrange_slot(const ExpertLayer& layer, std::span<std::byte> slot,
                  std::span<std::byte> scratch) {
  switch (layer.arrangement) {
    case ExpertArrangement::kAsStored:
      return;
    case ExpertArrangement::kRowMajorParts:
      MF_CHECK(scratch.size() >= layer.slot_bytes && slot.size() >= layer.slot_bytes);
      for (const ExpertMatrix* matrix : {&layer.gate, &layer.up, &layer.down}) {
        arrange_tiles(*matrix, slot.data(), scratch.data());
      }
      return;
    case ExpertArrangement::kInputMajorInterleaved:
      MF_CHECK(scratch.size() >= layer.slot_bytes && slot.size() >= layer.slot_bytes);
      std::memcpy(scratch.data(), slot.data(), layer.slot_bytes);
      arrange_input_major(layer, slot.data(), scratch.data());
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
