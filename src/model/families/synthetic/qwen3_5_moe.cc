// Shapes of Qwen3.5 and Qwen3.6 mixture-of-experts models as random checkpoints.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/format.h"
#include "base/json.h"
#include "model/families/synthetic/family_shapes.h"

namespace moeflux::synthetic {
namespace {

struct QwenShape {
  SyntheticModelShape shape;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 2;
  int64_t head_dim = 256;
  int64_t experts = 256;
  int64_t experts_per_token = 8;
  int64_t intermediate = 0;  // of routed experts and of the shared one
  int64_t key_heads = 16;
  int64_t value_heads = 0;
  int64_t delta_dim = 128;  // of keys and of values
  int64_t vocab = 248320;
  int64_t interval = 4;  // every so many layers, one with attention
  int64_t context = 262144;
  int64_t eos = 248044;

  int64_t values_width() const { return value_heads * delta_dim; }
  int64_t conv_channels() const { return 2 * key_heads * delta_dim + values_width(); }
};

constexpr int64_t kConvTaps = 4;

constexpr std::array kShapes = {
    QwenShape{.shape = {"qwen3.6-35b-a3b", "Qwen3.6-35B-A3B; Qwen3.5-35B-A3B has the same", 40},
              .hidden = 2048,
              .heads = 16,
              .intermediate = 512,
              .value_heads = 32},
    QwenShape{.shape = {"qwen3.5-122b-a10b", "Qwen3.5-122B-A10B", 48},
              .hidden = 3072,
              .heads = 32,
              .intermediate = 1024,
              .value_heads = 64},
    QwenShape{.shape = {"qwen3.5-397b-a17b", "Qwen3.5-397B-A17B", 60},
              .hidden = 4096,
              .heads = 32,
              .experts = 512,
              .experts_per_token = 10,
              .intermediate = 1024,
              .value_heads = 64},
    QwenShape{.shape = {"tiny", "for tests: both kinds of layers, 32 experts, 4 per token", 4},
              .hidden = 128,
              .heads = 4,
              .kv_heads = 2,
              .head_dim = 32,
              .experts = 32,
              .experts_per_token = 4,
              .intermediate = 128,
              .key_heads = 2,
              .value_heads = 4,
              .delta_dim = 32,
              .vocab = 512,
              .interval = 2,
              .context = 4096,
              .eos = 511},
};

class QwenBuilder {
 public:
  QwenBuilder(const QwenShape& shape, const SyntheticModelOptions& options)
      : s_(shape),
        num_layers_(options.num_layers > 0 ? options.num_layers : shape.shape.num_layers),
        format_{options.bits, options.group_size} {}

  SyntheticCheckpoint build() {
    out_.config_json = config().dump(1) + "\n";
    out_.add_linear("language_model.model.embed_tokens", {s_.vocab, s_.hidden}, format_,
                    kEmbeddingDeviation);
    for (int64_t i = 0; i < num_layers_; ++i) add_layer(i);
    add_norm("language_model.model.norm.weight", s_.hidden);
    add_linear("language_model.lm_head", {s_.vocab, s_.hidden}, 1.0f);
    return std::move(out_);
  }

 private:
  static std::string layer_prefix(int64_t i) {
    return formatted("language_model.model.layers.{}.", i);
  }
  bool has_attention(int64_t i) const { return (i + 1) % s_.interval == 0; }

  void add_linear(const std::string& name, const Shape& shape, float gain) {
    out_.add_linear(name, shape, format_, deviation(shape.back(), gain));
  }
  void add_router(const std::string& name, int64_t rows) {
    out_.add_linear(name, {rows, s_.hidden}, kRouterFormat, deviation(s_.hidden, 1.0f));
  }
  void add_norm(const std::string& name, int64_t width) {
    out_.add_vector(name, {width}, DType::kBf16, 0.9f, 1.1f);
  }

  void add_layer(int64_t i) {
    const std::string p = layer_prefix(i);
    add_norm(p + "input_layernorm.weight", s_.hidden);
    add_norm(p + "post_attention_layernorm.weight", s_.hidden);
    if (has_attention(i)) {
      add_attention(p + "self_attn.");
    } else {
      add_delta(p + "linear_attn.");
    }
    const int64_t m = s_.intermediate;
    add_router(p + "mlp.gate", s_.experts);
    add_router(p + "mlp.shared_expert_gate", 1);
    add_linear(p + "mlp.shared_expert.gate_proj", {m, s_.hidden}, 1.0f);
    add_linear(p + "mlp.shared_expert.up_proj", {m, s_.hidden}, 1.0f);
    add_linear(p + "mlp.shared_expert.down_proj", {s_.hidden, m}, kOutputGain);
    add_linear(p + "mlp.switch_mlp.gate_proj", {s_.experts, m, s_.hidden}, 1.0f);
    add_linear(p + "mlp.switch_mlp.up_proj", {s_.experts, m, s_.hidden}, 1.0f);
    add_linear(p + "mlp.switch_mlp.down_proj", {s_.experts, s_.hidden, m}, kOutputGain);
  }

  void add_attention(const std::string& p) {
    const int64_t q_width = s_.heads * s_.head_dim;
    const int64_t kv_width = s_.kv_heads * s_.head_dim;
    add_linear(p + "q_proj", {2 * q_width, s_.hidden}, 1.0f);
    add_linear(p + "k_proj", {kv_width, s_.hidden}, 1.0f);
    add_linear(p + "v_proj", {kv_width, s_.hidden}, 1.0f);
    add_linear(p + "o_proj", {s_.hidden, q_width}, kOutputGain);
    add_norm(p + "q_norm.weight", s_.head_dim);
    add_norm(p + "k_norm.weight", s_.head_dim);
  }

  void add_delta(const std::string& p) {
    add_linear(p + "in_proj_qkv", {s_.conv_channels(), s_.hidden}, 1.0f);
    add_linear(p + "in_proj_z", {s_.values_width(), s_.hidden}, 1.0f);
    add_linear(p + "in_proj_b", {s_.value_heads, s_.hidden}, 1.0f);
    add_linear(p + "in_proj_a", {s_.value_heads, s_.hidden}, 1.0f);
    add_linear(p + "out_proj", {s_.hidden, s_.values_width()}, kOutputGain);
    out_.add_vector(p + "conv1d.weight", {s_.conv_channels(), kConvTaps, 1}, DType::kBf16, -0.5f,
                    0.5f);
    // As such layers are initialised: decay rates between 1 and 16, steps of 0.001 to 0.1 through
    // a softplus.
    out_.add_vector(p + "A_log", {s_.value_heads}, DType::kF32, 0.0f, std::log(16.0f));
    out_.add_vector(p + "dt_bias", {s_.value_heads}, DType::kBf16, -6.9f, -2.25f);
    add_norm(p + "norm.weight", s_.delta_dim);
  }

  Json config() const {
    Json text;
    text["model_type"] = "qwen3_5_moe_text";
    text["num_hidden_layers"] = num_layers_;
    text["hidden_size"] = s_.hidden;
    text["hidden_act"] = "silu";
    text["vocab_size"] = s_.vocab;
    text["max_position_embeddings"] = s_.context;
    text["rms_norm_eps"] = 1e-6;
    text["tie_word_embeddings"] = false;
    text["num_attention_heads"] = s_.heads;
    text["num_key_value_heads"] = s_.kv_heads;
    text["head_dim"] = s_.head_dim;
    text["attention_bias"] = false;
    text["attn_output_gate"] = true;
    text["rope_parameters"] = {
        {"rope_type", "default"}, {"rope_theta", 1e7}, {"partial_rotary_factor", 0.25}};
    text["full_attention_interval"] = s_.interval;
    for (int64_t i = 0; i < num_layers_; ++i) {
      text["layer_types"].push_back(has_attention(i) ? "full_attention" : "linear_attention");
    }
    text["linear_num_key_heads"] = s_.key_heads;
    text["linear_num_value_heads"] = s_.value_heads;
    text["linear_key_head_dim"] = s_.delta_dim;
    text["linear_value_head_dim"] = s_.delta_dim;
    text["linear_conv_kernel_dim"] = kConvTaps;
    text["num_experts"] = s_.experts;
    text["num_experts_per_tok"] = s_.experts_per_token;
    text["moe_intermediate_size"] = s_.intermediate;
    text["shared_expert_intermediate_size"] = s_.intermediate;
    text["eos_token_id"] = s_.eos;
    Json json;
    json["architectures"] = {"Qwen3_5MoeForConditionalGeneration"};
    json["model_type"] = "qwen3_5_moe";
    json["text_config"] = std::move(text);
    json["eos_token_id"] = s_.eos;
    json["quantization"] = quantization();
    return json;
  }

  Json quantization() const {
    Json json = {{"group_size", format_.group_size}, {"bits", format_.bits}, {"mode", "affine"}};
    const Json router = {{"group_size", kRouterFormat.group_size}, {"bits", kRouterFormat.bits}};
    for (int64_t i = 0; i < num_layers_; ++i) {
      json[layer_prefix(i) + "mlp.gate"] = router;
      json[layer_prefix(i) + "mlp.shared_expert_gate"] = router;
    }
    return json;
  }

  const QwenShape& s_;
  int64_t num_layers_;
  LinearFormat format_;
  SyntheticCheckpoint out_;
};

std::vector<SyntheticModelShape> list() {
  std::vector<SyntheticModelShape> shapes;
  for (const QwenShape& shape : kShapes) shapes.push_back(shape.shape);
  return shapes;
}

SyntheticCheckpoint make(std::string_view name, const SyntheticModelOptions& options) {
  const auto shape = std::find_if(kShapes.begin(), kShapes.end(), [&](const QwenShape& candidate) {
    return candidate.shape.name == name;
  });
  MF_CHECK(shape != kShapes.end());
  return QwenBuilder(*shape, options).build();
}

}  // namespace

const FamilyShapes qwen3_5_moe_shapes = {list, make};

}  // namespace moeflux::synthetic
