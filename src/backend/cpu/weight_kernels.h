// The kernels that multiply a weight. They depend on the weight and the precision alone, so that a
// token's bits do not depend on what else is computed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/cpu_device.h"
#include "backend/cpu/isa_choice.h"
#include "backend/cpu/tile_products.h"

namespace moeflux::cpu {

class WeightKernels {
 public:
  /// `precision` is not kAuto.
  WeightKernels(const KernelSet& kernels, Precision precision)
      : precision_(precision),
        rounded_(rounded_tiles(kernels, precision)),
        f32_(*kernels.f32_tiles) {}

  /// Whether products of a weight are those of TileKernels.
  bool uses_tiles(const Weight& weight) const {
    return weight.format.order == WeightOrder::kTiled || block_kernel(weight) != nullptr;
  }
  /// Whether the kernels of row-major numbers multiply it.
  bool is_direct(const Weight& weight) const { return !uses_tiles(weight) && has_kernels(weight); }

  // Only for a weight that uses_tiles():
  TileMatrix tile_matrix(const Weight& weight) const {
    return cpu::tile_matrix(weight, block_kernel(weight));
  }
  TileShape tile_shape(const Weight& weight) const {
    return {&tile_kernels(weight), weight.cols, tile_group(weight)};
  }
  /// Kinds of kernels and sizes of groups of all tile_shape(), and which of them a weight has.
  static constexpr size_t kShapes = 8;
  size_t shape_index(const Weight& weight) const;

  /// Where row `row`'s panel begins; null where uses_tiles() is false.
  const uint8_t* panel_at(const Weight& weight, int64_t row) const;

 private:
  static const TileKernels* rounded_tiles(const KernelSet& kernels, Precision precision) {
    if (precision == Precision::kQ16) return kernels.q16_tiles;
    return precision == Precision::kInt8 ? kernels.int8_tiles : nullptr;
  }
  /// How a weight of blocks is multiplied as it is stored; null: not so.
  const BlockKernel* block_kernel(const Weight& weight) const;
  /// Columns whose activations share a scale.
  int64_t tile_group(const Weight& weight) const;
  /// Whether activations that meet a weight are rounded, where it uses_tiles().
  bool rounds(const Weight& weight) const {
    if (precision_ == Precision::kQ16) return has_unit_products(weight.format, weight.cols);
    return rounded_ != nullptr && !weight.exact_activations;
  }
  const TileKernels& tile_kernels(const Weight& weight) const {
    return rounds(weight) ? *rounded_ : f32_;
  }

  const Precision precision_;
  const TileKernels* const rounded_;  // of int8 or q16; null: neither
  const TileKernels& f32_;
};

}  // namespace moeflux::cpu
