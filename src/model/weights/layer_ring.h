// LayerRing: memory that the matrices of some layers share in turn, because they are read from the
// drive for every step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/weights/weight_origin.h"
#include "quant/weight.h"

namespace moeflux {

struct LayerRing {
  /// A matrix lies up to so far behind the one before it.
  static constexpr uint64_t kPageBytes = 4096;

  std::vector<bool> streamed;  // by layer; empty: none
  int64_t slots = 0;           // each holds a layer; the n-th streamed layer has slot n % slots
  uint64_t slot_bytes = 0;
  uint64_t landing_bytes = 0;  // beside the slots, for matrices that are rearranged, and reads

  bool holds(LayerId layer) const {
    return !streamed.empty() && streamed[static_cast<size_t>(index(layer))];
  }
  int64_t slot_of(LayerId layer) const {
    return std::count(streamed.begin(), streamed.begin() + index(layer), true) % slots;
  }
  uint64_t bytes() const { return static_cast<uint64_t>(slots) * slot_bytes + landing_bytes; }
};

/// A matrix of a layer in a ring.
struct StreamedModule {
  LayerId layer{};
  int64_t slot = 0;
  Weight to;
  StoredModule from;

  /// True when it is not in memory as it is stored.
  bool is_arranged() const { return is_arranged(to.format, from.format); }
  static bool is_arranged(const QuantFormat& to, const QuantFormat& from) {
    return to.kind != from.kind || to.order != from.order;
  }
};

}  // namespace moeflux
