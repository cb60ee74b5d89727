#include "convert/random/synthetic_model.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/trace/trace_device.h"
#include "base/check.h"
#include "base/format.h"
#include "base/json.h"
#include "convert/random/random_weights.h"
#include "load/model_loader.h"
#include "model/config/config.h"
#include "model/family/public_models.h"
#include "quant/format.h"

namespace moeflux {
namespace {

/// How converters store routers and gates: a config spells it out module by module.
constexpr LinearFormat kRouterFormat{.bits = 8, .group_size = 64};

constexpr const char* kNumLayers = "num_hidden_layers";

/// Where a config has the numbers of the text model.
Json& trunk_of(Json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

Json config_of(const PublicModel& model) {
  Result<Json> config = parse_json(model.config_json, model.name);
  MF_CHECK(config.ok() && trunk_of(*config).contains(kNumLayers));
  return std::move(config).value();
}

/// Lists of `all` entries keep the first `kept`, those of objects within `config` too, and so do
/// patterns with a letter for each layer.
void cut_lists(Json& config, int64_t all, int64_t kept) {
  for (auto& item : config.items()) {
    Json& value = item.value();
    if (value.is_object()) cut_lists(value, all, kept);
    if (value.is_string() && item.key().ends_with("_pattern")) {
      auto& letters = value.get_ref<std::string&>();
      if (static_cast<int64_t>(letters.size()) == all) letters.resize(static_cast<size_t>(kept));
    }
    if (!value.is_array() || static_cast<int64_t>(value.size()) != all) continue;
    value.erase(value.begin() + kept, value.end());
  }
}

/// Lists of the numbers of layers, from 1 on, keep those of the first `kept`.
void cut_layer_numbers(Json& trunk, int64_t kept) {
  if (!trunk.contains("linear_attn_config")) return;
  Json& config = trunk["linear_attn_config"];
  for (const char* const key : {"full_attn_layers", "kda_layers"}) {
    Json left = Json::array();
    for (const Json& layer : config[key]) {
      if (layer.get<int64_t>() <= kept) left.push_back(layer);
    }
    config[key] = std::move(left);
  }
}

/// The table of n-grams is as much smaller as there are fewer layers: whole it is most of a model.
void cut_ngrams(Json& trunk, int64_t all, int64_t kept) {
  const auto cut = [&](Json& rows) {
    rows = std::max<int64_t>(1000, rows.get<int64_t>() * kept / all);
  };
  if (trunk.contains("ngram_vocab_size_base")) cut(trunk["ngram_vocab_size_base"]);
  if (!trunk.contains("engram_vocab_size")) return;
  cut(trunk["engram_vocab_size"]);
  // Each head's rows are a prime above that; and tokens are hashed as they are, as no text is
  // known.
  constexpr int64_t kPrimesAbove = int64_t{1} << 16;
  for (Json& rows : trunk["engram_num_embeddings"])
    rows = rows.get<int64_t>() * kept / all + kPrimesAbove;
  trunk["engram_compressed_vocab_size"] = trunk["vocab_size"];
}

/// Layers that are left before a loop of passes ends run once, as those of the family without one.
void cut_loop(Json& trunk, int64_t kept) {
  constexpr const char* kEnd = "loop_layer_index_end";
  if (!trunk.contains(kEnd) || kept >= trunk[kEnd].get<int64_t>()) return;
  for (const char* const key :
       {"loop_layer_index_start", kEnd, "loop_num_passes", "loop_gate_rank"}) {
    trunk.erase(key);
  }
  trunk["model_type"] = "inkling2_text";
}

/// As a converter would leave the first layers: the publisher's own quantisation is gone, and lists
/// of what each layer is are as long as there are layers.
Result<Json> sliced_config(std::string_view name, int64_t num_layers) {
  MF_ASSIGN_OR_RETURN(const PublicModel model, find_public_model(name));
  Json config = config_of(model);
  config.erase("quantization_config");  // first: it may move what stands behind it
  Json& trunk = trunk_of(config);
  const int64_t all = trunk[kNumLayers];
  if (num_layers < 0 || num_layers > all) {
    return make_error(ErrorCode::kInvalidArgument, "{} layers; {} has {}", num_layers, name, all);
  }
  trunk.erase("quantization_config");
  if (num_layers == 0) return config;
  trunk[kNumLayers] = num_layers;
  cut_lists(trunk, all, num_layers);
  cut_layer_numbers(trunk, num_layers);
  cut_ngrams(trunk, all, num_layers);
  cut_loop(trunk, num_layers);
  return config;
}

Status check_options(const SyntheticModelOptions& options) {
  if (options.bits != 4 && options.bits != 8) {
    return make_error(ErrorCode::kInvalidArgument, "{} bits, expected 4 or 8", options.bits);
  }
  if (options.group_size != 32 && options.group_size != 64 && options.group_size != 128) {
    return make_error(ErrorCode::kInvalidArgument, "groups of {}, expected 32, 64 or 128",
                      options.group_size);
  }
  return {};
}

/// Puts a model's tensors into the layout of MLX.
class MlxBuilder {
 public:
  MlxBuilder(const LoadedModel& model, std::string_view model_type, LinearFormat format)
      : scheme_(model.family->name_scheme(model.spec())), format_(format) {
    if (model.family->mlx_names != nullptr) names_ = model.family->mlx_names(model_type);
    section_ = {{"group_size", format.group_size}, {"bits", format.bits}, {"mode", "affine"}};
  }

  void add(const RandomTensor& tensor) {
    std::string name = mlx_name(tensor.name, scheme_, names_);
    if (!tensor.projection.empty()) name += "." + names_.experts + "." + tensor.projection;
    switch (tensor.kind) {
      case RandomTensor::Kind::kRouter:
        if (names_.plain_router) return add_plain(name, tensor);
        return add_linear(name, tensor, kRouterFormat);
      case RandomTensor::Kind::kMatrix:
        // A gate is a router of one row.
        if (tensor.shape[0] == 1) return add_linear(name, tensor, kRouterFormat);
        return add_linear(name, tensor, format_);
      case RandomTensor::Kind::kTable:
        section_[name] = false;
        return add_plain(name, tensor);
      case RandomTensor::Kind::kExperts:
        return add_linear(name, tensor, format_);
      case RandomTensor::Kind::kFloats:
        if (!tensor.projection.empty()) name += ".bias";
        return out_.add_vector(name, shape_of(tensor), tensor.dtype, tensor.low, tensor.high);
    }
    __builtin_unreachable();
  }

  SyntheticCheckpoint finish(Json config) && {
    config["quantization"] = std::move(section_);
    out_.config_json = config.dump(1) + "\n";
    return std::move(out_);
  }

 private:
  void add_linear(const std::string& name, const RandomTensor& tensor, LinearFormat format) {
    if (!is_valid(QuantFormat::affine(format.bits, format.group_size, DType::kBf16),
                  tensor.shape.back())) {
      section_[name] = false;
      return add_plain(name, tensor);
    }
    if (format.bits != format_.bits || format.group_size != format_.group_size) {
      section_[name] = {{"group_size", format.group_size}, {"bits", format.bits}};
    }
    out_.add_linear(name, tensor.shape, format, tensor.deviation);
  }

  void add_plain(const std::string& name, const RandomTensor& tensor) {
    out_.add_uniform(name + ".weight", tensor.shape, DType::kBf16, tensor.deviation);
  }

  // MLX has the channels of a convolution last.
  static Shape shape_of(const RandomTensor& tensor) {
    const bool is_convolution =
        tensor.name.ends_with(".conv1d.weight") || tensor.name.ends_with(".conv.weight");
    return is_convolution ? Shape{tensor.shape[0], tensor.shape[1], 1} : tensor.shape;
  }

  const NameScheme scheme_;
  MlxNames names_;
  LinearFormat format_;
  Json section_;
  SyntheticCheckpoint out_;
};

}  // namespace

std::vector<SyntheticModelShape> synthetic_model_shapes() {
  std::vector<SyntheticModelShape> shapes;
  for (const auto models : {public_models(), tiny_models()}) {
    for (const PublicModel& model : models) {
      Json config = config_of(model);
      shapes.push_back(
          {model.name, config["model_type"], trunk_of(config)[kNumLayers].get<int64_t>()});
    }
  }
  return shapes;
}

Result<std::string> config_like(std::string_view name, int64_t num_layers) {
  MF_ASSIGN_OR_RETURN(const Json config, sliced_config(name, num_layers));
  return config.dump(1) + "\n";
}

Result<SyntheticCheckpoint> make_synthetic_model(std::string_view name,
                                                 const SyntheticModelOptions& options) {
  MF_RETURN_IF_ERROR(check_options(options));
  MF_ASSIGN_OR_RETURN(Json config, sliced_config(name, options.num_layers));
  const std::unique_ptr<Device> device = make_trace_device();
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                      assume_model(config.dump(1) + "\n", *device, {}));
  const std::string model_type = config["model_type"];
  MlxBuilder builder(*model, model_type, {options.bits, options.group_size});
  for (const RandomTensor& tensor : random_tensors(*model)) builder.add(tensor);
  return std::move(builder).finish(std::move(config));
}

}  // namespace moeflux
