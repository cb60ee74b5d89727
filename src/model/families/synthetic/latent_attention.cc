// Models with latent attention as random checkpoints: of the public configs, whose tensors follow
// from what their family reads in them.
#include "model/mixers/latent_attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "base/json.h"
#include "model/config.h"
#include "model/families/synthetic/family_shapes.h"
#include "model/family.h"
#include "model/public_models.h"

namespace moeflux::synthetic {
namespace {

struct LatentShape {
  std::string_view name;
  std::string_view note;
  std::string_view like;  // of the public models
  /// The keys that are smaller than there, for tests; empty: none.
  std::string_view changes;
};

constexpr std::array kShapes = {
    LatentShape{"deepseek-v3", "DeepSeek-V3, V3.1, R1: 3 dense layers, then experts", "deepseek-v3",
                ""},
    LatentShape{"tiny-latent",
                "for tests: latent attention, 1 dense layer, 32 experts, 4 per token",
                "deepseek-v3", R"({
                  "num_hidden_layers": 4, "first_k_dense_replace": 1, "hidden_size": 128,
                  "intermediate_size": 256, "moe_intermediate_size": 128, "n_routed_experts": 32,
                  "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2, "vocab_size": 512,
                  "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 128,
                  "kv_lora_rank": 128, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
                  "v_head_dim": 32, "max_position_embeddings": 4096, "eos_token_id": 511})"},
};

// As a converter would leave it: the publisher's own quantization is gone.
Json config_of(const LatentShape& shape) {
  const Result<PublicModel> like = find_public_model(shape.like);
  MF_CHECK(like.ok());
  Result<Json> json = parse_json(like->config_json, shape.like);
  MF_CHECK(json.ok());
  json->erase("quantization_config");
  if (!shape.changes.empty()) {
    const Result<Json> changes = parse_json(shape.changes, shape.name);
    MF_CHECK(changes.ok());
    json->update(*changes);
  }
  return std::move(json).value();
}

ModelSpec spec_of(const std::string& config_json) {
  Result<Config> config = Config::parse(config_json);
  MF_CHECK(config.ok());
  const Result<const Family*> family = find_family(config->model_type());
  MF_CHECK(family.ok());
  Result<ModelSpec> spec = (*family)->read_spec(*config);
  MF_CHECK(spec.ok());
  return std::move(spec).value();
}

class LatentBuilder {
 public:
  LatentBuilder(std::string config_json, LinearFormat format)
      : spec_(spec_of(config_json)), format_(format) {
    out_.config_json = std::move(config_json);
  }

  SyntheticCheckpoint build() {
    out_.add_linear("model.embed_tokens", {spec_.vocab_size, spec_.hidden_size}, format_,
                    kEmbeddingDeviation);
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      add_layer(formatted("model.layers.{}.", i), spec_.layers[i]);
    }
    add_norm("model.norm.weight", spec_.hidden_size);
    add_linear("lm_head", {spec_.vocab_size, spec_.hidden_size}, 1.0f);
    return std::move(out_);
  }

 private:
  void add_linear(const std::string& name, const Shape& shape, float gain) {
    out_.add_linear(name, shape, format_, deviation(shape.back(), gain));
  }
  void add_norm(const std::string& name, int64_t width) {
    out_.add_vector(name, {width}, DType::kBf16, 0.9f, 1.1f);
  }
  void add_glu(const std::string& p, int64_t intermediate) {
    add_linear(p + ".gate_proj", {intermediate, spec_.hidden_size}, 1.0f);
    add_linear(p + ".up_proj", {intermediate, spec_.hidden_size}, 1.0f);
    add_linear(p + ".down_proj", {spec_.hidden_size, intermediate}, kOutputGain);
  }

  void add_layer(const std::string& p, const LayerSpec& layer) {
    add_norm(p + "input_layernorm.weight", spec_.hidden_size);
    add_norm(p + "post_attention_layernorm.weight", spec_.hidden_size);
    add_attention(p + "self_attn.", *mixer_as<LatentAttentionSpec>(layer));
    if (layer.moe.num_experts > 0) {
      add_moe(p + "mlp.", layer.moe);
    } else {
      add_glu(p + "mlp", layer.dense_intermediate_size);
    }
  }

  void add_attention(const std::string& p, const LatentAttentionSpec& s) {
    const int64_t h = spec_.hidden_size;
    add_linear(p + "q_a_proj", {s.q_lora_rank, h}, 1.0f);
    add_norm(p + "q_a_layernorm.weight", s.q_lora_rank);
    add_linear(p + "q_b_proj", {s.num_heads * (s.nope_dim + s.rope_dim), s.q_lora_rank}, 1.0f);
    add_linear(p + "kv_a_proj_with_mqa", {s.latent_dim(), h}, 1.0f);
    add_norm(p + "kv_a_layernorm.weight", s.kv_lora_rank);
    add_linear(p + "kv_b_proj", {s.num_heads * (s.nope_dim + s.v_dim), s.kv_lora_rank}, 1.0f);
    add_linear(p + "o_proj", {h, s.num_heads * s.v_dim}, kOutputGain);
  }

  void add_moe(const std::string& p, const MoeSpec& s) {
    const int64_t h = spec_.hidden_size;
    const int64_t m = s.moe_intermediate_size;
    // Converters leave this router as it is published. Values of unit variance are between the
    // roots of 3; the correction is small beside what tokens differ by.
    const float bound = deviation(h, std::sqrt(3.0f));
    out_.add_vector(p + "gate.weight", {s.num_experts, h}, DType::kBf16, -bound, bound);
    out_.add_vector(p + "gate.e_score_correction_bias", {s.num_experts}, DType::kF32, -0.01f,
                    0.01f);
    add_glu(p + "shared_experts", s.shared_intermediate_size);
    add_linear(p + "switch_mlp.gate_proj", {s.num_experts, m, h}, 1.0f);
    add_linear(p + "switch_mlp.up_proj", {s.num_experts, m, h}, 1.0f);
    add_linear(p + "switch_mlp.down_proj", {s.num_experts, h, m}, kOutputGain);
  }

  ModelSpec spec_;
  LinearFormat format_;
  SyntheticCheckpoint out_;
};

std::vector<SyntheticModelShape> list() {
  std::vector<SyntheticModelShape> shapes;
  for (const LatentShape& shape : kShapes) {
    shapes.push_back(
        {shape.name, shape.note, config_of(shape)["num_hidden_layers"].get<int64_t>()});
  }
  return shapes;
}

SyntheticCheckpoint make(std::string_view name, const SyntheticModelOptions& options) {
  const auto shape =
      std::find_if(kShapes.begin(), kShapes.end(),
                   [&](const LatentShape& candidate) { return candidate.name == name; });
  MF_CHECK(shape != kShapes.end());
  Json config = config_of(*shape);
  if (options.num_layers > 0) config["num_hidden_layers"] = options.num_layers;
  config["quantization"] = {
      {"group_size", options.group_size}, {"bits", options.bits}, {"mode", "affine"}};
  return LatentBuilder(config.dump(1) + "\n", {options.bits, options.group_size}).build();
}

}  // namespace

const FamilyShapes latent_attention_shapes = {list, make};

}  // namespace moeflux::synthetic
