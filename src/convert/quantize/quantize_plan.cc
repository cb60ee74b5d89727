#include "convert/quantize/quantize_plan.h"

#include <algorithm>
#include <optional>

#include "base/format.h"
#include "base/json.h"
#include "model/config/config.h"
#include "model/weights/stored_formats.h"
#include "quant/format_traits.h"
#include "quant/quantize.h"

namespace moeflux {
namespace {

constexpr int kGgufRouterBits = 8;
constexpr int kRouterGroup = 64;  // as mlx-lm's own conversions have it
constexpr std::string_view kTypes =
    "affine-2, affine-3, affine-4, affine-5, affine-6, affine-8, mxfp4";
constexpr std::array<const char*, 3> kMatrices = {"gate_proj", "up_proj", "down_proj"};
constexpr std::array<const char*, 3> kPlainLayers = {"", "fc1", "fc2"};  // without a gate

std::string last_component(const std::string& name) { return name.substr(name.rfind('.') + 1); }

class Planner {
 public:
  Planner(const LoadedModel& loaded, const QuantizeType& type, uint64_t shard_bytes_max)
      : loaded_(loaded), type_(type), shard_bytes_max_(shard_bytes_max) {}

  Result<QuantizePlan> plan() {
    MF_ASSIGN_OR_RETURN(const Config config, Config::parse(loaded_.config_json));
    const std::string model_type(config.model_type());
    if (loaded_.family->mlx_names != nullptr) names_ = loaded_.family->mlx_names(model_type);
    scheme_ = loaded_.family->name_scheme(loaded_.spec());
    section_["group_size"] = type_.group_size;
    section_["bits"] = type_.bits;
    section_["mode"] = std::string(type_.kind->name);
    add_dense();
    for (size_t i = 0; i < loaded_.experts.layers.size(); ++i) {
      if (loaded_.experts.layers[i].num_experts > 0) add_experts(static_cast<int32_t>(i));
    }
    name_files();
    MF_ASSIGN_OR_RETURN(plan_.config_json, config_text());
    return std::move(plan_);
  }

 private:
  std::string own_name(const std::string& canonical) const {
    return mlx_name(canonical, scheme_, names_);
  }

  // Scales are of the type that the source's numbers have, if it says one.
  static DType scale_dtype(const QuantFormat& source) {
    const bool says = source.is_plain() || source.is_affine();
    return says ? source.dtype : DType::kBf16;
  }

  std::optional<QuantFormat> format_of_type(const QuantFormat& source, int64_t cols) const {
    if (type_.kind == &plain_format) return floats_of(source);
    const QuantFormat format =
        type_.kind == &affine_format
            ? QuantFormat::affine(type_.bits, type_.group_size, scale_dtype(source))
            : QuantFormat::of(*type_.kind);
    if (is_valid(format, cols)) return format;
    return std::nullopt;
  }

  // A plain format stays what it is; other numbers become BF16.
  static QuantFormat floats_of(const QuantFormat& source) {
    return source.is_plain() ? source : QuantFormat::plain(DType::kBf16);
  }

  QuantFormat choose(const ClaimedModule& module, const std::string& name) {
    const int64_t cols = module.shape.back();
    const std::string last = last_component(module.canonical);
    const auto& plain = names_.plain_modules;
    if (type_.kind == &plain_format) return floats_of(module.format);
    if (module.is_table) {
      section_[name] = false;
      return floats_of(module.format);
    }
    const bool stays = (module.is_router && names_.plain_router) ||
                       std::find(plain.begin(), plain.end(), last) != plain.end();
    if (stays) return floats_of(module.format);
    // A gate is a router of one row.
    if (module.is_router || module.shape[module.shape.rank() - 2] == 1) {
      const QuantFormat wide =
          QuantFormat::affine(kGgufRouterBits, kRouterGroup, scale_dtype(module.format));
      if (is_valid(wide, cols)) {
        section_[name] = {{"group_size", kRouterGroup}, {"bits", kGgufRouterBits}};
        return wide;
      }
      section_[name] = false;
      return floats_of(module.format);
    }
    const std::optional<QuantFormat> format = format_of_type(module.format, cols);
    if (!format) section_[name] = false;
    return format ? *format : floats_of(module.format);
  }

  QuantizedShard& shard_with_room(uint64_t bytes) {
    if (plan_.shards.empty() || dense_bytes_ + bytes > shard_bytes_max_) {
      plan_.shards.push_back({.files = {""}, .tensors = {{}}});
      dense_bytes_ = 0;
    }
    dense_bytes_ += bytes;
    return plan_.shards.back();
  }

  static uint64_t bytes_of(const std::vector<safetensors::PlannedTensor>& tensors) {
    uint64_t bytes = 0;
    for (const auto& tensor : tensors) bytes += tensor.size_bytes;
    return bytes;
  }

  void add_dense() {
    for (const ClaimedModule& module : loaded_.modules) {
      const std::string name = own_name(module.canonical);
      const QuantFormat format = choose(module, name);
      const auto tensors = planned_parts(name, module.shape, format);
      QuantizedShard& shard = shard_with_room(bytes_of(tensors));
      shard.modules.push_back({name, &module, format});
      shard.tensors[0].insert(shard.tensors[0].end(), tensors.begin(), tensors.end());
    }
    // Behind the modules of the last shard: they are few and small.
    QuantizedShard& shard = shard_with_room(0);
    for (const ClaimedFloats& floats : loaded_.floats) {
      const TensorEntry& entry = *floats.stored.entry;
      // Norms are all that a family of this kind adds to.
      const bool is_less = names_.norms_hold_one && floats.ids_below == 0 && floats.map(0.0f) != 0;
      const QuantizedFloats item{own_name(floats.canonical), &floats, shape_of(floats),
                                 is_less ? 1.0f : 0.0f};
      shard.floats.push_back(item);
      shard.tensors[0].push_back({item.name, entry.dtype, item.shape, entry.size_bytes});
    }
  }

  // MLX has the channels of a convolution last: [channels, taps, 1] where PyTorch has the same
  // numbers as [channels, 1, taps].
  static Shape shape_of(const ClaimedFloats& floats) {
    const Shape& stored = floats.stored.entry->shape;
    const bool is_convolution =
        floats.canonical.ends_with("conv1d.weight") || floats.canonical.ends_with("conv.weight");
    if (is_convolution && floats.shape.rank() == 2) return {floats.shape[0], floats.shape[1], 1};
    return stored;
  }

  void add_experts(int32_t number) {
    const ExpertLayer& layer = loaded_.experts.layers[static_cast<size_t>(number)];
    const std::array<const Weight*, 3> matrices = {&layer.gate, &layer.up, &layer.down};
    const std::array<const ExpertBias*, 3> biases = {&layer.gate_bias, &layer.up_bias,
                                                     &layer.down_bias};
    QuantizedExperts experts{.layer = LayerId{number}};
    const std::string prefix =
        own_name(loaded_.expert_prefixes[static_cast<size_t>(number)]) + "." + names_.experts + ".";
    std::array<std::vector<safetensors::PlannedTensor>, 3> tensors;
    uint64_t largest = 0;
    for (size_t i = layer.first_matrix(); i < 3; ++i) {
      experts.names[i] = prefix + (layer.has_gate() ? kMatrices : kPlainLayers)[i];
      const auto format = format_of_type(matrices[i]->format, matrices[i]->cols);
      if (!format) section_[experts.names[i]] = false;
      experts.formats[i] = format ? *format : floats_of(matrices[i]->format);
      tensors[i] =
          planned_parts(experts.names[i], {layer.num_experts, matrices[i]->rows, matrices[i]->cols},
                        experts.formats[i]);
      if (biases[i]->size > 0) {
        const uint64_t bytes = static_cast<uint64_t>(layer.num_experts * biases[i]->size) *
                               static_cast<uint64_t>(dtype_bits(biases[i]->dtype)) / 8;
        tensors[i].push_back({experts.names[i] + ".bias",
                              biases[i]->dtype,
                              {layer.num_experts, biases[i]->size},
                              bytes});
      }
      largest = std::max(largest, bytes_of(tensors[i]));
    }
    if (plan_.shards.back().experts.empty() || expert_bytes_ + largest > shard_bytes_max_) {
      plan_.shards.push_back({.files = {"", "", ""}, .tensors = {{}, {}, {}}});
      expert_bytes_ = 0;
    }
    expert_bytes_ += largest;
    QuantizedShard& shard = plan_.shards.back();
    shard.experts.push_back(std::move(experts));
    for (size_t i = 0; i < 3; ++i) {
      shard.tensors[i].insert(shard.tensors[i].end(), tensors[i].begin(), tensors[i].end());
    }
  }

  void name_files() {
    size_t count = 0;
    for (const QuantizedShard& shard : plan_.shards) count += shard.files.size();
    size_t number = 0;
    for (QuantizedShard& shard : plan_.shards) {
      for (std::string& file : shard.files) {
        file = formatted("model-{:05}-of-{:05}.safetensors", ++number, count);
      }
    }
  }

  Result<std::string> config_text() const {
    MF_ASSIGN_OR_RETURN(Json config, parse_json(loaded_.config_json, "config.json"));
    if (const auto thinker = config.find("thinker_config"); thinker != config.end()) {
      config = Json((*thinker)["text_config"]);  // Qwen3-Omni's: what else it has is left out
    }
    config.erase("quantization");
    config.erase("quantization_config");
    if (!names_.outer_model_type.empty() && !config.contains("text_config")) {
      Json outer = {{"model_type", names_.outer_model_type}};
      for (const char* key : {"architectures", "eos_token_id", "tie_word_embeddings"}) {
        if (config.contains(key)) outer[key] = config[key];
      }
      outer["text_config"] = std::move(config);
      config = std::move(outer);
    }
    if (type_.kind != &plain_format) {
      config["quantization"] = section_;
      config["quantization_config"] = section_;
    }
    return config.dump(4) + "\n";
  }

  const LoadedModel& loaded_;
  const QuantizeType type_;
  const uint64_t shard_bytes_max_;
  MlxNames names_;
  NameScheme scheme_;
  QuantizePlan plan_;
  Json section_ = Json::object();
  uint64_t dense_bytes_ = 0;
  uint64_t expert_bytes_ = 0;
};

}  // namespace

Result<QuantizeType> QuantizeType::parse(const std::string& name, int group_size) {
  QuantizeType type;
  if (name == "mxfp4") {
    type = {&mxfp4_format, 4, 32};
    return type;
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    if (name != formatted("affine-{}", bits)) continue;
    type = {&affine_format, bits, group_size};
    return type;
  }
  return make_error(ErrorCode::kInvalidArgument, "type {}, expected one of {}", name, kTypes);
}

std::string QuantizeType::to_string() const {
  return kind == &affine_format ? formatted("affine-{}/{}", bits, group_size)
                                : std::string(kind->name);
}

uint64_t QuantizePlan::total_bytes() const {
  uint64_t bytes = 0;
  for (const QuantizedShard& shard : shards) {
    for (const auto& file : shard.tensors) {
      for (const safetensors::PlannedTensor& tensor : file) bytes += tensor.size_bytes;
    }
  }
  return bytes;
}

std::vector<safetensors::PlannedTensor> planned_parts(const std::string& name, const Shape& shape,
                                                      const QuantFormat& format) {
  const Parts<std::string> names = affine_names(name, ".weight");
  const Weight laid = lay_out(format, shape.num_elements() / shape.back(), shape.back());
  std::vector<safetensors::PlannedTensor> tensors;
  for (const PartRole role : kPartRoles) {
    if (!laid.has(role)) continue;
    const Tensor& part = laid.parts[role];
    DType dtype = part.dtype;
    Shape stored = shape;
    stored.set(shape.rank() - 1, part.shape.back());
    // MLX has codes of all formats in words.
    if (role == PartRole::kCodes && dtype == DType::kU8) {
      dtype = DType::kU32;
      stored.set(shape.rank() - 1, part.shape.back() / 4);
    }
    tensors.push_back({names[role], dtype, stored, part.size_bytes()});
  }
  return tensors;
}

Result<QuantizePlan> plan_quantize(const LoadedModel& loaded, const QuantizeType& type,
                                   uint64_t shard_bytes_max) {
  return Planner(loaded, type, shard_bytes_max).plan();
}

}  // namespace moeflux
