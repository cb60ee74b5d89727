#include "engine/pack_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "engine/expert_tensors.h"
#include "model/stored_formats.h"
#include "quant/formats/affine.h"
#include "quant/formats/tiled.h"

namespace moeflux {
namespace {

constexpr int kRouterBits = 8;
constexpr std::array<const char*, 3> kMatrixNames = {"gate", "up", "down"};

bool is_quantised(const LoadedModel& loaded) {
  const auto coded = [](const QuantFormat& format) { return !format.is_plain(); };
  return std::any_of(loaded.modules.begin(), loaded.modules.end(),
                     [&](const ClaimedModule& module) { return coded(module.format); }) ||
         std::any_of(loaded.experts.layers.begin(), loaded.experts.layers.end(),
                     [&](const ExpertLayer& layer) {
                       return layer.num_experts > 0 &&
                              (coded(layer.gate.format) || coded(layer.down.format));
                     });
}

Status check_format(const PackFormat& format, const LoadedModel& loaded) {
  if (!format.bits) return {};
  if (!affine::is_valid_bits(*format.bits) || !affine::is_valid_group(format.group_size)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} bits in groups of {}; expected 2, 3, 4, 5, 6 or 8 in groups of 32, 64 or "
                      "128",
                      *format.bits, format.group_size);
  }
  if (is_quantised(loaded)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the model is quantised already; bits can be chosen for plain floats only");
  }
  return {};
}

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

Result<QuantFormat> target_format(const Weight& matrix, const PackFormat& wanted) {
  QuantFormat format = matrix.format;
  if (wanted.bits) format = QuantFormat::affine(*wanted.bits, wanted.group_size, format.dtype);
  if (!is_valid(format, matrix.cols)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "rows of {} numbers are not a multiple of groups of {} (see --group)",
                      matrix.cols, wanted.group_size);
  }
  const bool tiles = wanted.order == WeightOrder::kTiled && tiled::is_tileable(format, matrix.rows);
  return format.with_order(tiles ? WeightOrder::kTiled : WeightOrder::kRowMajor);
}

Result<PackedLayer> plan_layer(const TensorIndex& index, int32_t number, const ExpertLayer& layer,
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
    const Result<QuantFormat> target = target_format(*matrices[i], format);
    if (!target.ok()) {
      return target.error().with_context(
          formatted("experts of layer {}: {}", number, kMatrixNames[i]));
    }
    packed.matrices[i] = {.format = *target, .rows = matrices[i]->rows, .cols = matrices[i]->cols};
    packed.biases[i] = {.dtype = biases[i]->dtype, .size = biases[i]->size};
  }
  lay_out_blob(packed);
  return packed;
}

/// The modules that are quantised, their formats, and the entries of config.json that say so.
class DenseFormats {
 public:
  DenseFormats(const LoadedModel& loaded, const PackFormat& format) {
    if (!format.bits) return;
    section_["group_size"] = format.group_size;
    section_["bits"] = *format.bits;
    for (const ClaimedModule& module : loaded.modules) {
      // A gate is a router of one row.
      const bool router = module.is_router || module.shape[module.shape.rank() - 2] == 1;
      const int bits = router ? kRouterBits : *format.bits;
      const QuantFormat affine = QuantFormat::affine(bits, format.group_size, module.format.dtype);
      if (!is_valid(affine, module.shape.back())) {
        section_[module.name] = false;
        continue;
      }
      formats_[module.name + ".weight"] = affine;
      if (bits != *format.bits) {
        section_[module.name] = {{"group_size", format.group_size}, {"bits", bits}};
      }
    }
  }

  DenseItem item(const std::string& name, const TensorEntry& entry) const {
    DenseItem item{.name = name, .source = entry};
    const auto found = formats_.find(name);
    if (found == formats_.end()) return item;
    item.format = found->second;
    item.cols = entry.shape.back();
    item.rows = entry.shape.num_elements() / item.cols;
    return item;
  }

  Result<std::string> config(const std::string& text) const {
    if (section_.empty()) return text;
    MF_ASSIGN_OR_RETURN(Json config, parse_json(text, "config.json"));
    config["quantization"] = section_;
    config["quantization_config"] = section_;
    return config.dump(4) + "\n";
  }

 private:
  Json section_ = Json::object();
  std::map<std::string, QuantFormat> formats_;  // by tensor
};

std::vector<safetensors::PlannedTensor> tensors_of(const DenseItem& item) {
  if (!item.format) {
    Shape shape = item.source.shape;
    if (item.source.format) {  // bytes of rows
      const int64_t rows = shape.num_elements() / shape.back();
      shape.set(shape.rank() - 1, static_cast<int64_t>(item.source.size_bytes) / rows);
    }
    return {{item.name, item.source.dtype, shape, item.source.size_bytes}};
  }
  const std::string module = item.name.substr(0, item.name.size() - 7);  // ".weight"
  const Parts<std::string> names = affine_names(module, ".weight");
  const Weight laid = lay_out(*item.format, item.rows, item.cols);
  std::vector<safetensors::PlannedTensor> tensors;
  for (const PartRole role : kPartRoles) {
    if (!laid.has(role)) continue;
    const Tensor& part = laid.parts[role];
    Shape shape = item.source.shape;
    shape.set(shape.rank() - 1, part.shape.back());
    tensors.push_back({names[role], part.dtype, shape, part.size_bytes()});
  }
  return tensors;
}

uint64_t size_of(const std::vector<safetensors::PlannedTensor>& tensors) {
  uint64_t bytes = 0;
  for (const safetensors::PlannedTensor& tensor : tensors) bytes += tensor.size_bytes;
  return bytes;
}

std::vector<DenseShard> plan_shards(std::vector<DenseItem> items, uint64_t bytes_max) {
  std::vector<DenseShard> shards;
  for (DenseItem& item : items) {
    std::vector<safetensors::PlannedTensor> tensors = tensors_of(item);
    if (shards.empty() || shards.back().size_bytes() + size_of(tensors) > bytes_max) {
      shards.emplace_back();
    }
    shards.back().items.push_back(std::move(item));
    for (safetensors::PlannedTensor& tensor : tensors) {
      shards.back().tensors.push_back(std::move(tensor));
    }
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].file = formatted("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

uint64_t recipe_of(const PackSource& source, uint64_t fingerprint, const PackFormat& format) {
  return checksum64(formatted("{} {} {} order {} bits {} group {} shards {}", kExpertPackVersion,
                              checksum_text(fingerprint), source.identity,
                              static_cast<int>(format.order), format.bits.value_or(0),
                              format.group_size, format.shard_bytes_max));
}

}  // namespace

uint64_t DenseShard::size_bytes() const { return size_of(tensors); }

uint64_t PackPlan::total_bytes() const {
  uint64_t bytes = 0;
  for (const DenseShard& shard : shards) bytes += shard.size_bytes();
  for (const PackedLayer& layer : layers) bytes += layer.file_bytes();
  return bytes;
}

Result<PackPlan> plan_pack(const PackSource& source, const LoadedModel& loaded,
                           const PackFormat& format) {
  MF_RETURN_IF_ERROR(check_format(format, loaded));
  PackPlan plan;
  MF_ASSIGN_OR_RETURN(plan.source, checkpoint_fingerprint(loaded.index, source.config_json));
  plan.recipe = recipe_of(source, plan.source, format);
  for (size_t i = 0; i < loaded.experts.layers.size(); ++i) {
    const ExpertLayer& layer = loaded.experts.layers[i];
    if (layer.num_experts == 0) continue;
    MF_ASSIGN_OR_RETURN(PackedLayer packed,
                        plan_layer(loaded.index, static_cast<int32_t>(i), layer, format));
    plan.layers.push_back(std::move(packed));
  }
  if (plan.layers.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the model has no routed experts to pack");
  }
  const DenseFormats formats(loaded, format);
  MF_ASSIGN_OR_RETURN(plan.config_json, formats.config(source.config_json));
  const std::set<std::string> expert_names = names_of_expert_tensors(loaded.index, loaded.experts);
  std::vector<DenseItem> items;
  for (const auto& [name, entry] : loaded.index.entries()) {
    if (!expert_names.contains(name)) items.push_back(formats.item(name, entry));
  }
  plan.shards = plan_shards(std::move(items), format.shard_bytes_max);
  return plan;
}

}  // namespace moeflux
