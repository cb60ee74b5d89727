// From the tensors that hold a layer's experts to the extents that are read for each of them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "checkpoint/tensor_index.h"
#include "experts/expert_table.h"
#include "quant/format.h"

namespace moeflux {

inline std::array<Weight*, 3> matrices_of(ExpertLayer& layer) {
  return {&layer.gate, &layer.up, &layer.down};
}
inline std::array<ExpertBias*, 3> biases_of(ExpertLayer& layer) {
  return {&layer.gate_bias, &layer.up_bias, &layer.down_bias};
}

/// Bytes of one expert in a tensor that stacks them.
uint64_t bytes_of_expert(const ExpertLayer& layer, const TensorEntry& stacked);

struct PartSource {
  const TensorEntry* entry = nullptr;
  uint64_t offset = 0;  // inside the tensor
};
/// Where a part of matrix (0 gate, 1 up, 2 down) of an expert lies.
using SourceOf = std::function<PartSource(int64_t expert, size_t matrix, PartRole role)>;

/// Lays the slot out and fills it from row-major parts; `stacked_biases` are [E, size] tensors of
/// gate, up and down; empty when there are none.
void fill_extents(ExpertLayer& layer, const SourceOf& source_of,
                  std::span<const TensorEntry* const> stacked_biases = {});

/// Lays the slot out and puts the experts of stacked tensors at its begin, one after another: what
/// an arrangement other than kAsStored and kRowMajorParts takes apart.
void fill_extents_in_turn(ExpertLayer& layer, std::span<const TensorEntry* const> stacked);

}  // namespace moeflux
