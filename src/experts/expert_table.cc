#include "experts/expert_table.h"

#include <algorithm>

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

}  // namespace moeflux
