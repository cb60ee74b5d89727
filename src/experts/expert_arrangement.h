// From the bytes of an expert as its file holds them to the layout of its slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "experts/expert_table.h"
#include "quant/weight.h"

namespace moeflux {

/// An expert's extents in memory: as its slot has them where the layer is kAsStored, else each
/// where landing_offset() says.
class LandedExpert {
 public:
  /// `memory` is the slot, or where the expert lands apart: from a page's begin landing_bytes().
  LandedExpert(const ExpertLayer& layer, ExpertId expert, std::byte* memory)
      : extents_(layer.extents_of(expert)),
        memory_(memory),
        as_stored_(layer.arrangement == ExpertArrangement::kAsStored) {}

  /// Where the byte lands that would come at `slot_offset`: it and those behind it of its extent.
  std::byte* at(size_t slot_offset) const {
    return memory_ + (as_stored_ ? slot_offset : landing_offset(extents_, slot_offset));
  }
  /// The parts of a matrix that lies so in a slot.
  Parts<std::span<std::byte>> parts_of(const Weight& placed) const;

 private:
  std::span<const ExpertExtent> extents_;
  std::byte* memory_;
  bool as_stored_;
};

/// Tasks of arrange(): gate, up, down and the biases.
constexpr int64_t kArrangeTasks = 4;

/// Writes what `task` (below kArrangeTasks) stands for to `slot`, of an arrangement other than
/// kAsStored and kInPlace. Tasks touch different bytes: they may run at once.
void arrange(const ExpertLayer& layer, const LandedExpert& from, std::span<std::byte> slot,
             int64_t task);

}  // namespace moeflux
