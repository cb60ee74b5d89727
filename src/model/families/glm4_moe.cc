// GLM-4.5, 4.5-Air, 4.6 and 4.7, Sarvam-30B, dots.llm1 and Solar-Open: grouped attention, the
// mixture of DeepSeek-V3. GLM has biases and turns half of a head, Sarvam has q, k and v in one
// matrix, dots.llm1 always norms queries and keys, Solar-Open never does.
#include <utility>

#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::glm4_moe {
namespace {

// dots.llm1: windows in listed layers, else from max_window_layers on.
void set_windows(Config& c, AttentionSpec attention, std::vector<LayerSpec>& layers) {
  attention.window = read_window(c, 4096);
  const auto num_layers = static_cast<int64_t>(layers.size());
  const int64_t first = c.int_or("max_window_layers", 62, {0, 4096});
  std::vector<bool> sliding;
  for (int64_t i = 0; i < num_layers; ++i) sliding.push_back(i >= first);
  if (c.has("layer_types")) sliding = read_sliding_layers(c, num_layers);
  const auto slides = share_mixer(std::move(attention));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (sliding[i]) layers[i].mixer = slides;
  }
}

// Dense layers of a config that mentions none.
int64_t usual_dense(std::string_view type) {
  return type == "glm4_moe" || type == "sarvam_moe" ? 1 : 0;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  if (c.model_type() == "glm4_moe") {
    attention.qkv_bias = c.bool_or("attention_bias", false);
    attention.qk_norm = c.bool_or("use_qk_norm", false) ? QkNorm::kPerHead : QkNorm::kNone;
    attention.rope = read_rope(c, {.head_dim = attention.head_dim, .partial_rotary_factor = 0.5});
  } else if (c.model_type() == "sarvam_moe") {
    attention.qkv_bias = c.bool_or("attention_bias", c.bool_or("use_qkv_bias", false));
    c.expect_bool("use_bias", false);
    attention.qk_norm = c.bool_or("use_qk_norm", true) ? QkNorm::kPerHead : QkNorm::kNone;
    c.assume("rope_theta", 8e6);
    c.assume("routed_scaling_factor", 2.5);
    attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  } else {
    const bool is_dots = c.model_type() == "dots1";
    attention.qkv_bias = c.bool_or("attention_bias", false);
    attention.o_bias = is_dots && c.bool_or("attention_out_bias", attention.qkv_bias);
    c.expect_bool("use_qk_norm", is_dots);
    if (!is_dots) {
      (void)read_layer_types(c, num_layers, {"layer_types", "full_attention", "full_attention", 1});
    }
    attention.qk_norm = is_dots ? QkNorm::kPerHead : QkNorm::kNone;
    attention.rope = read_rope(c, {.head_dim = attention.head_dim});
  }
  layer.mixer = share_mixer(attention);
  MoeSpec moe = read_experts(c);
  if (c.model_type() == "dots1") c.assume("norm_topk_prob", false);
  read_noaux_tc(c, moe);
  read_shared_experts(c, moe, c.model_type() == "dots1" ? 0 : 1);
  spec.layers =
      make_layers(c, layer, moe, read_dense_layers(c, num_layers, usual_dense(c.model_type())));
  if (c.model_type() == "dots1") set_windows(c, attention, spec.layers);
  if (c.model_type() == "glm4_moe") {
    layer.moe = moe;
    read_draft_layer(c, spec, "num_nextn_predict_layers", layer);
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (spec.model_type != "sarvam_moe") return scheme;
  scheme.renamed = {{"embed_tokens", "word_embeddings"},
                    {"self_attn.qkv_proj", "attention.query_key_value"},
                    {"self_attn.o_proj", "attention.dense"},
                    {"self_attn.q_norm", "attention.query_layernorm"},
                    {"self_attn.k_norm", "attention.key_layernorm"},
                    {"mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias"}};
  return scheme;
}

MlxNames mlx_names(std::string_view model_type) {
  return {.experts = model_type == "dots1" ? "experts" : "switch_mlp", .plain_router = true};
}

}  // namespace

extern const Family family = {{"glm4_moe", "dots1", "sarvam_moe", "solar_open"},
                              read_spec,
                              names,
                              blocks::make_decoder,
                              mlx_names,
                              {{"glm4v_moe", "glm4_moe"}}};

}  // namespace moeflux::glm4_moe
