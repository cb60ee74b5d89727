#include "convert/pack/pack_plan.h"

#include <array>
#include <set>

#include "base/format.h"
#include "checkpoint/checksum.h"
#include "load/expert_tensors.h"
#include "quant/formats/tiled.h"

namespace moeflux {
namespace {

/// The name of the tensor that holds the first gate.
std::string gate_tensor_of(const TensorIndex& index, int32_t layer_number,
                           const ExpertLayer& layer) {
  const auto packed = index.packed_layers().find(layer_number);
  if (packed != index.packed_layers().end()) return packed->second.layout.gate_tensor;
  const ExpertExtent& first = layer.extents.front();
  for (const auto& [name, entry] : index.entries()) {
    if (entry.file == first.file && entry.offset_bytes <= first.offset &&
        first.offset < entry.offset_bytes + entry.size_bytes) {
      return name;
    }
  }
  return {};
}

QuantFormat target_format(const Weight& matrix, WeightOrder wanted) {
  const QuantFormat& format = matrix.format;
  const bool tiles = wanted == WeightOrder::kTiled && tiled::is_tileable(format, matrix.rows);
  return format.with_order(tiles ? WeightOrder::kTiled : WeightOrder::kRowMajor);
}

PackedLayer plan_layer(const TensorIndex& index, int32_t number, const ExpertLayer& layer,
                       const PackFormat& format) {
  PackedLayer packed;
  packed.layer = number;
  packed.file = packed_layer_name(number);
  packed.gate_tensor = gate_tensor_of(index, number, layer);
  packed.num_experts = layer.num_experts;
  const std::array<const Weight*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
  const std::array<const ExpertBias*, 3> biases = {&layer.gate_bias, &layer.up_bias,
                                                   &layer.down_bias};
  for (size_t i = layer.first_matrix(); i < matrices.size(); ++i) {
    packed.matrices[i] = {.format = target_format(*matrices[i], format.order),
                          .rows = matrices[i]->rows,
                          .cols = matrices[i]->cols};
    packed.biases[i] = {.dtype = biases[i]->dtype, .size = biases[i]->size};
  }
  lay_out_blob(packed);
  return packed;
}

safetensors::PlannedTensor tensor_of(const DenseItem& item) {
  Shape shape = item.source.shape;
  if (item.source.format) {  // bytes of rows
    const int64_t rows = shape.num_elements() / shape.back();
    shape.set(shape.rank() - 1, static_cast<int64_t>(item.source.size_bytes) / rows);
  }
  return {item.name, item.source.dtype, shape, item.source.size_bytes};
}

std::vector<DenseShard> plan_shards(std::vector<DenseItem> items, uint64_t bytes_max) {
  std::vector<DenseShard> shards;
  for (DenseItem& item : items) {
    safetensors::PlannedTensor tensor = tensor_of(item);
    if (shards.empty() || shards.back().size_bytes() + tensor.size_bytes > bytes_max) {
      shards.emplace_back();
    }
    shards.back().items.push_back(std::move(item));
    shards.back().tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = formatted("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

// The same for the same output: what the text says of bits is what packs have always said.
uint64_t recipe_of(const PackSource& source, uint64_t fingerprint, const PackFormat& format) {
  return checksum64(formatted("{} {} {} order {} bits 0 group 64 shards {}", kExpertPackVersion,
                              checksum_text(fingerprint), source.identity,
                              static_cast<int>(format.order), format.shard_bytes_max));
}

}  // namespace

uint64_t DenseShard::size_bytes() const {
  uint64_t bytes = 0;
  for (const safetensors::PlannedTensor& tensor : tensors) bytes += tensor.size_bytes;
  return bytes;
}

uint64_t PackPlan::total_bytes() const {
  uint64_t bytes = 0;
  for (const DenseShard& shard : shards) bytes += shard.size_bytes();
  for (const PackedLayer& layer : layers) bytes += layer.file_bytes();
  return bytes;
}

Result<PackPlan> plan_pack(const PackSource& source, const LoadedModel& loaded,
                           const PackFormat& format) {
  PackPlan plan;
  MF_ASSIGN_OR_RETURN(plan.source, checkpoint_fingerprint(loaded.index, source.config_json));
  plan.recipe = recipe_of(source, plan.source, format);
  plan.config_json = source.config_json;
  for (size_t i = 0; i < loaded.experts.layers.size(); ++i) {
    const ExpertLayer& layer = loaded.experts.layers[i];
    if (layer.num_experts == 0) continue;
    plan.layers.push_back(plan_layer(loaded.index, static_cast<int32_t>(i), layer, format));
  }
  if (plan.layers.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the model has no routed experts to pack");
  }
  const std::set<std::string> expert_names = names_of_expert_tensors(loaded.index, loaded.experts);
  std::vector<DenseItem> items;
  for (const auto& [name, entry] : loaded.index.entries()) {
    if (!expert_names.contains(name)) items.push_back({name, entry});
  }
  plan.shards = plan_shards(std::move(items), format.shard_bytes_max);
  return plan;
}

}  // namespace moeflux
