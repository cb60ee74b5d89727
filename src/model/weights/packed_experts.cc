// Experts from an expert pack: the manifest says where everything lies, the config
// what it must be.
#include <array>

#include "base/format.h"
#include "base/units.h"
#include "model/weights/expert_claims.h"

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 3> kProjections = {"gate", "up", "down"};

ExpertBias to_bias(const PackedBias& packed) { return {packed.dtype, packed.size, packed.offset}; }

/// Stretches that lie one after another and cover the blob: gate, if there is one; up; down with
/// biases.
void fill_extents(ExpertLayer& layer, const PackedExperts& packed) {
  const PackedLayer& layout = packed.layout;
  const std::array<uint64_t, 4> begins = {0, layout.matrices[1].parts.codes.offset_bytes,
                                          layout.matrices[2].parts.codes.offset_bytes,
                                          layout.stride};
  const size_t first = layer.first_matrix();
  layer.extents_per_expert = static_cast<int32_t>(3 - first);
  layer.extents.reserve(static_cast<size_t>(layout.num_experts) * (3 - first));
  for (uint64_t expert = 0; expert < static_cast<uint64_t>(layout.num_experts); ++expert) {
    for (size_t i = first; i < 3; ++i) {
      layer.extents.push_back(
          {packed.file, expert * layout.stride + begins[i], begins[i + 1] - begins[i], begins[i]});
    }
  }
}

/// Gives the layer the orders the device prefers; where these are the stored ones, nothing is
/// rearranged.
void choose_orders(ExpertLayer& layer, const Device& device) {
  const std::array<Weight*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
  bool as_stored = true;
  if (!layer.has_gate()) layer.gate.format = layer.up.format;
  for (size_t i = layer.first_matrix(); i < matrices.size(); ++i) {
    Weight& matrix = *matrices[i];
    layer.stored[i] = matrix;
    matrix.format = format_in_memory(matrix.format, matrix.rows, matrix.cols);
    matrix.format.order = device.preferred_order(matrix.format, matrix.rows, matrix.cols);
    as_stored = as_stored && matrix.format == layer.stored[i].format;
  }
  if (as_stored) return;
  layer.stored_biases = {layer.gate_bias, layer.up_bias, layer.down_bias};
  layer.arrangement = ExpertArrangement::kReordered;
  const size_t arriving_bytes = layer.slot_bytes;
  lay_out_slot(layer);
  layer.slot_bytes = round_up(std::max(layer.slot_bytes, arriving_bytes), kBlobAlignment);
}

}  // namespace

std::optional<ExpertLayer> packed_experts(TensorClaims& claims, const Device& device, LayerId id,
                                          ExpertLayer layer, bool with_bias) {
  const TensorIndex& tensors = claims.index();
  const auto found = tensors.packed_layers().find(index(id));
  if (found == tensors.packed_layers().end()) {
    claims.fail(make_error(ErrorCode::kCorruption,
                           "{} has no layer {}, whose experts config.json means", kExpertPackName,
                           index(id)));
    return std::nullopt;
  }
  const PackedExperts& packed = found->second;
  const PackedLayer& layout = packed.layout;
  if (layout.num_experts != layer.num_experts) {
    claims.fail(make_error(ErrorCode::kCorruption,
                           "{}: layer {} has {} experts, config.json means {}", kExpertPackName,
                           index(id), layout.num_experts, layer.num_experts));
    return std::nullopt;
  }
  const std::array<Weight*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
  const std::array<ExpertBias*, 3> biases = {&layer.gate_bias, &layer.up_bias, &layer.down_bias};
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Weight& matrix = layout.matrices[i];
    const int64_t bias_size = with_bias ? matrices[i]->rows : 0;
    if (matrix.rows != matrices[i]->rows || matrix.cols != matrices[i]->cols ||
        layout.biases[i].size != bias_size) {
      claims.fail(
          make_error(ErrorCode::kCorruption,
                     "{}: layer {}: {} is {} x {} with a bias of {}, config.json means {} x {} "
                     "with a bias of {}",
                     kExpertPackName, index(id), kProjections[i], matrix.rows, matrix.cols,
                     layout.biases[i].size, matrices[i]->rows, matrices[i]->cols, bias_size));
      return std::nullopt;
    }
    *matrices[i] = matrix;
    *biases[i] = to_bias(layout.biases[i]);
  }
  layer.slot_bytes = layer.checked_bytes = layout.stride;
  layer.checksums = packed.checksums;
  fill_extents(layer, packed);
  choose_orders(layer, device);
  claims.claim_packed(index(id));
  return layer;
}

}  // namespace moeflux
