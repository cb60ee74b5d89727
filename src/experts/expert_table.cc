#include "experts/expert_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "io/async_reader.h"

namespace moeflux {

Tensor ExpertBias::view(Buffer& buffer, size_t slot_offset) const {
  if (size == 0) return {};
  return Tensor::view(buffer, slot_offset + offset, Shape{size}, dtype);
}

uint64_t ExpertLayer::bytes_per_expert() const {
  uint64_t bytes = 0;
  const bool is_converted = arrangement == ExpertArrangement::kReordered;
  const std::array<const Weight*, 3> matrices = {&gate, &up, &down};
  for (size_t i = first_matrix(); i < matrices.size(); ++i) {
    const Weight& matrix = is_converted ? stored[i] : *matrices[i];
    bytes += weight_bytes(matrix.format, matrix.rows, matrix.cols);
  }
  for (const ExpertBias* bias : {&gate_bias, &up_bias, &down_bias}) {
    bytes += static_cast<uint64_t>(bias->size * dtype_bits(bias->dtype) / 8);
  }
  return bytes;
}

Weight ExpertLayer::matrix_of(ExpertId expert, size_t matrix) const {
  Weight placed = *std::array{&gate, &up, &down}[matrix];
  if (arrangement != ExpertArrangement::kInPlace) return placed;
  for (const PartRole role : kPartRoles) {
    size_t& offset = placed.parts[role].offset_bytes;
    if (placed.has(role)) offset = landing_offset(extents_of(expert), offset);
  }
  return placed;
}

ExpertBias ExpertLayer::bias_of(ExpertId expert, size_t matrix) const {
  ExpertBias placed = *std::array{&gate_bias, &up_bias, &down_bias}[matrix];
  if (arrangement == ExpertArrangement::kInPlace && placed.size > 0) {
    placed.offset = landing_offset(extents_of(expert), placed.offset);
  }
  return placed;
}

ExpertWeights ExpertLayer::weights(ExpertId expert, Buffer& buffer, size_t slot_offset) const {
  const auto matrix = [&](size_t i) { return matrix_of(expert, i).at(buffer, slot_offset); };
  const auto bias = [&](size_t i) { return bias_of(expert, i).view(buffer, slot_offset); };
  return {expert, matrix(first_matrix()), matrix(1), matrix(2), bias(0), bias(1), bias(2)};
}

size_t ExpertTable::slot_bytes_max() const {
  size_t bytes = 0;
  bool in_place = false;
  for (const ExpertLayer& layer : layers) {
    bytes = std::max(bytes, layer.slot_bytes);
    in_place = in_place || layer.arrangement == ExpertArrangement::kInPlace;
  }
  return in_place ? static_cast<size_t>(round_up(bytes, uint64_t{kDirectAlignment})) : bytes;
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
    if (matrix->rows == 0) continue;
    *matrix = lay_out(matrix->format, matrix->rows, matrix->cols);
    end = place_parts(*matrix, end, kAlignment);
  }
  for (ExpertBias* bias : {&layer.gate_bias, &layer.up_bias, &layer.down_bias}) {
    bias->offset = place(static_cast<uint64_t>(bias->size * dtype_bits(bias->dtype) / 8));
  }
  layer.slot_bytes = end;
}

bool adjoins(const ExpertExtent& extent, const ExpertExtent* last) {
  return last != nullptr && last->file == extent.file &&
         last->offset + last->bytes == extent.offset;
}

namespace {

/// Where `extent` lands behind `last`, which ends at `end`: in a page of its own, so that whole
/// pages around it can be read.
size_t landing_of(const ExpertExtent& extent, const ExpertExtent* last, size_t end) {
  if (adjoins(extent, last)) return end;
  return static_cast<size_t>(round_up(end, uint64_t{kDirectAlignment}) +
                             extent.offset % kDirectAlignment);
}

// Whether whole pages of the file are what is read already.
bool comes_in_pages(const ExpertLayer& layer) {
  const ExpertExtent* last = nullptr;
  for (const ExpertExtent& extent : layer.extents_of(ExpertId{0})) {
    if (!adjoins(extent, last) && extent.offset % kDirectAlignment != 0) return false;
    last = &extent;
  }
  return true;
}

size_t element_bytes(DType dtype) {
  return static_cast<size_t>(std::max(dtype_bits(dtype) / 8, 1));
}

// Extents that bring several parts at once come from packs, which are in pages.
bool elements_are_aligned(const ExpertLayer& layer) {
  for (int32_t e = 0; e < layer.num_experts; ++e) {
    for (size_t m = layer.first_matrix(); m < 3; ++m) {
      const Weight matrix = layer.matrix_of(ExpertId{e}, m);
      for (const PartRole role : kPartRoles) {
        const Tensor& part = matrix.parts[role];
        if (matrix.has(role) && part.offset_bytes % element_bytes(part.dtype) != 0) return false;
      }
    }
  }
  return true;
}

}  // namespace

size_t landing_offset(std::span<const ExpertExtent> extents, size_t slot_offset) {
  size_t end = 0;
  const ExpertExtent* last = nullptr;
  for (const ExpertExtent& extent : extents) {
    const size_t begin = landing_of(extent, last, end);
    if (slot_offset >= extent.slot_offset && slot_offset - extent.slot_offset < extent.bytes) {
      return begin + (slot_offset - extent.slot_offset);
    }
    end = begin + extent.bytes;
    last = &extent;
  }
  MF_CHECK(false && "no extent brings this byte");
  return 0;
}

size_t landing_bytes(const ExpertLayer& layer) {
  if (layer.num_experts == 0) return 0;
  size_t bytes = 0;
  for (const ExpertExtent& extent : layer.extents_of(ExpertId{0})) {
    bytes += extent.bytes + 2 * (kDirectAlignment - 1);
  }
  return static_cast<size_t>(round_up(bytes, uint64_t{kDirectAlignment}));
}

void compute_in_place(ExpertLayer& layer, double growth_max) {
  if (layer.arrangement != ExpertArrangement::kAsStored || comes_in_pages(layer)) return;
  const auto slot_bytes = static_cast<double>(layer.slot_bytes);
  if (static_cast<double>(landing_bytes(layer)) > slot_bytes * (1.0 + growth_max)) return;
  layer.arrangement = ExpertArrangement::kInPlace;
  if (!elements_are_aligned(layer)) {
    layer.arrangement = ExpertArrangement::kAsStored;
    return;
  }
  layer.slot_bytes = landing_bytes(layer);
}

namespace {

// The parts of tiles lie where they would arrive: one after another where the tiles would be.
std::optional<ExpertLayer> without_tiles(const ExpertLayer& tiled, const Device& device) {
  ExpertLayer layer = tiled;
  for (Weight* matrix : {&layer.gate, &layer.up, &layer.down}) {
    if (matrix->rows == 0 || matrix->format.order != WeightOrder::kTiled) continue;
    const QuantFormat format = matrix->format.with_order(WeightOrder::kRowMajor);
    if (!device.multiplies_rows_as_tiles(format)) return std::nullopt;
    const uint64_t begin = matrix->parts.codes.offset_bytes;
    *matrix = lay_out(format, matrix->rows, matrix->cols);
    place_parts(*matrix, begin, 1);
  }
  layer.arrangement = ExpertArrangement::kAsStored;
  compute_in_place(layer);
  if (layer.arrangement != ExpertArrangement::kInPlace) return std::nullopt;
  return layer;
}

}  // namespace

bool compute_as_stored(ExpertTable& table, const Device& device) {
  bool changed = false;
  for (ExpertLayer& layer : table.layers) {
    if (layer.num_experts == 0 || layer.arrangement != ExpertArrangement::kRowMajorParts) continue;
    std::optional<ExpertLayer> stored = without_tiles(layer, device);
    if (!stored) continue;
    layer = std::move(*stored);
    changed = true;
  }
  return changed;
}

}  // namespace moeflux
