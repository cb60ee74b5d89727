#include "backend/cpu/weight_kernels.h"

#include <algorithm>
#include <bit>
#include <optional>

namespace moeflux::cpu {

const BlockKernel* WeightKernels::block_kernel(const Weight& weight) const {
  if (!rounds(weight)) return nullptr;
  if (rounded_->blocks == nullptr || weight.rows % kTilePanelRows != 0) return nullptr;
  const std::optional<BlockKind> kind = block_kind(weight.format);
  return kind ? &rounded_->blocks->of[static_cast<size_t>(*kind)] : nullptr;
}

int64_t WeightKernels::tile_group(const Weight& weight) const {
  const BlockKernel* block = block_kernel(weight);
  const int64_t group = block != nullptr ? block->group_size : weight.format.group_size;
  return rounds(weight) && precision_ == Precision::kQ16 ? std::min(group, kUnitCols) : group;
}

size_t WeightKernels::shape_index(const Weight& weight) const {
  const auto group = static_cast<size_t>(
      std::countr_zero(static_cast<uint64_t>(tile_group(weight) / kTileGroupMin)));
  return (&tile_kernels(weight) == &f32_ ? kShapes / 2 : 0) + group;
}

const uint8_t* WeightKernels::panel_at(const Weight& weight, int64_t row) const {
  if (!uses_tiles(weight)) return nullptr;
  const int64_t panels = weight.rows / kTilePanelRows;
  const auto panel_bytes = static_cast<int64_t>(weight.parts.codes.size_bytes()) / panels;
  return bytes_of(weight.parts.codes) + row / kTilePanelRows * panel_bytes;
}

}  // namespace moeflux::cpu
