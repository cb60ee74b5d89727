// Memory of experts that stay where a device has some of its own.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace moeflux {

/// Where experts that stay lie while the device has memory of its own for some of them.
struct ExpertMemory {
  /// Slots of slot_bytes in memory that the device reads slowly; null: all are in its own, and none
  /// of them moves.
  const Buffer* far = nullptr;
  /// Room of its own for a few that are chosen, or null. Its contents matter to nobody between two
  /// calls of expert_ffn().
  Buffer* landing = nullptr;
  uint64_t slot_bytes = 0;    // multiples of 16
  uint64_t expert_bytes = 0;  // of a slot, those of an expert
};

}  // namespace moeflux
