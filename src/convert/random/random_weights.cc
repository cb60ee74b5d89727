#include "convert/random/random_weights.h"

#include <cmath>
#include <string_view>

namespace moeflux {
namespace {

// The residual stream is the embedding, which is random per token, plus layers' outputs of a
// twentieth of its size: after any number of layers the routers see what is particular to a token,
// and tokens spread over the experts.
constexpr float kEmbeddingDeviation = 1.0f;
constexpr float kOutputGain = 0.05f;

/// Keeps the size of activations when gain is 1: a sum of `cols` products of unit variance.
float deviation(int64_t cols, float gain) { return gain / std::sqrt(static_cast<float>(cols)); }

bool is_output(std::string_view module) {
  return module.ends_with("o_proj") || module.ends_with("out_proj") ||
         module.ends_with("down_proj") || module.ends_with("wo_b");
}

float deviation_of(std::string_view module, int64_t cols) {
  if (module == "embed_tokens") return kEmbeddingDeviation;
  return deviation(cols, is_output(module) ? kOutputGain : 1.0f);
}

/// Where the numbers of a kind of small tensor lie.
struct Range {
  std::string_view ending;
  DType dtype;
  float low;
  float high;
};

// Norms and what else multiplies are about 1. Delta rules are as such layers are initialised: decay
// rates between 1 and 16, whose logarithm is stored, steps of 0.001 to 0.1 through a softplus. The
// corrections of routers are small beside what tokens differ by. Weights that make gates of streams
// and of pools give numbers of about 1.
constexpr Range kRanges[] = {{".A_log", DType::kF32, 0.0f, 2.7725887f},
                             {".dt_bias", DType::kBf16, -6.9f, -2.25f},
                             {"conv1d.weight", DType::kBf16, -0.5f, 0.5f},
                             {".conv.weight", DType::kBf16, -0.5f, 0.5f},
                             {".e_score_correction_bias", DType::kF32, -0.01f, 0.01f},
                             {".router_bias", DType::kF32, -0.01f, 0.01f},
                             {"_fn", DType::kF32, -0.02f, 0.02f},
                             {"_base", DType::kF32, -1.0f, 1.0f},
                             {".ape", DType::kF32, -1.0f, 1.0f},
                             {".attn_sink", DType::kF32, -1.0f, 1.0f},
                             {"_compress_gate", DType::kBf16, -0.03f, 0.03f},
                             {"_compress_ape", DType::kBf16, -1.0f, 1.0f},
                             {".sinks", DType::kBf16, -1.0f, 1.0f},
                             {"_residual_gate.gate", DType::kF32, -0.5f, 0.5f},
                             {".gate_bias", DType::kBf16, -0.1f, 0.1f},
                             {".balancing_biases", DType::kF32, -0.01f, 0.01f},
                             {"conv_qk_depthwise.weight", DType::kBf16, -0.5f, 0.5f},
                             {"conv_qk_grouped.weight", DType::kBf16, -0.1f, 0.1f},
                             {"_states_bias", DType::kBf16, -0.01f, 0.01f},
                             {".residual_bias", DType::kBf16, -0.01f, 0.01f},
                             {".bias", DType::kBf16, -0.1f, 0.1f},
                             {"", DType::kBf16, 0.9f, 1.1f}};

RandomTensor floats(std::string name, const Shape& shape) {
  RandomTensor tensor{.kind = RandomTensor::Kind::kFloats, .name = std::move(name), .shape = shape};
  for (const Range& range : kRanges) {
    if (!tensor.name.ends_with(range.ending)) continue;
    tensor.dtype = range.dtype;
    tensor.low = range.low;
    tensor.high = range.high;
    break;
  }
  return tensor;
}

void add_experts(std::vector<RandomTensor>& tensors, const LoadedModel& model, int32_t number) {
  const ExpertLayer& layer = model.experts.layers[static_cast<size_t>(number)];
  struct Part {
    const char* projection;
    const Weight& matrix;
    const ExpertBias& bias;
  };
  for (const Part& part :
       {Part{"gate_proj", layer.gate, layer.gate_bias}, Part{"up_proj", layer.up, layer.up_bias},
        Part{"down_proj", layer.down, layer.down_bias}}) {
    if (part.matrix.rows == 0) continue;
    RandomTensor matrix{.kind = RandomTensor::Kind::kExperts,
                        .name = model.expert_prefixes[static_cast<size_t>(number)],
                        .shape = {layer.num_experts, part.matrix.rows, part.matrix.cols},
                        .deviation = deviation_of(part.projection, part.matrix.cols),
                        .layer = LayerId{number},
                        .projection = part.projection};
    tensors.push_back(matrix);
    if (part.bias.size == 0) continue;
    RandomTensor bias = floats(".bias", {layer.num_experts, part.bias.size});
    bias.name = matrix.name;
    bias.layer = matrix.layer;
    bias.projection = matrix.projection;
    tensors.push_back(std::move(bias));
  }
}

}  // namespace

std::vector<RandomTensor> random_tensors(const LoadedModel& model) {
  std::vector<RandomTensor> tensors;
  for (const ClaimedModule& module : model.modules) {
    tensors.push_back({.kind = module.is_table    ? RandomTensor::Kind::kTable
                               : module.is_router ? RandomTensor::Kind::kRouter
                                                  : RandomTensor::Kind::kMatrix,
                       .name = module.canonical,
                       .shape = module.shape,
                       .deviation = module.is_table
                                        ? kEmbeddingDeviation
                                        : deviation_of(module.canonical, module.shape.back())});
  }
  for (const ClaimedFloats& small : model.floats) {
    RandomTensor tensor = floats(small.canonical, small.shape);
    if (small.ids_below > 0) {
      tensor.dtype = DType::kI32;
      tensor.low = 0.0f;
      tensor.high = static_cast<float>(small.ids_below);
    }
    tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < model.experts.layers.size(); ++i) {
    if (model.experts.layers[i].num_experts == 0) continue;
    add_experts(tensors, model, static_cast<int32_t>(i));
  }
  return tensors;
}

}  // namespace moeflux
