#include "experts/expert_table.h"

#include <algorithm>

#include "base/units.h"

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

uint64_t ExpertLayer::bytes_per_expert() const {
  uint64_t bytes = 0;
  for (const ExpertMatrix* matrix : {&gate, &up, &down}) {
    bytes += weight_bytes(matrix->format, matrix->rows, matrix->cols).total();
  }
  return bytes;
}

ExpertWeights ExpertLayer::weights(ExpertId expert, Buffer& buffer, size_t slot_offset) const {
  return {expert, gate.view(buffer, slot_offset), up.view(buffer, slot_offset),
          down.view(buffer, slot_offset)};
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

size_t lay_out_slot(ExpertMatrix& gate, ExpertMatrix& up, ExpertMatrix& down) {
  constexpr uint64_t kAlignment = 64;  // a cache line: the widest aligned load of any kernel
  size_t end = 0;
  const auto place = [&](uint64_t bytes) {
    const size_t begin = end;
    end = round_up(end + bytes, kAlignment);
    return begin;
  };
  for (ExpertMatrix* matrix : {&gate, &up, &down}) {
    const WeightBytes bytes = weight_bytes(matrix->format, matrix->rows, matrix->cols);
    matrix->data_offset = place(bytes.data);
    matrix->scales_offset = place(bytes.scales);
    matrix->biases_offset = place(bytes.biases);
  }
  return end;
}

}  // namespace moeflux
