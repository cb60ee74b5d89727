// DeepSeek-V3, R1 and V3.1, Cogito-V2-671B, Kimi-K2, GLM-4.7-Flash, sarvam-105b and A.X-K1: latent
// attention, sigmoid router with a correction bias and groups, ungated shared experts, dense first
// layers. In DeepSeek-V3.2 and GLM-5 an index chooses the keys that a layer sees; from GLM-5.2 on
// most layers share the choice of the last one that has an index. A.X-K2 has one in each, norms
// with gates and a gate of what attention gives.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::deepseek_v3 {
namespace {

constexpr std::string_view kAxk1 = "axk1";
constexpr std::string_view kAxk2 = "axk2";

bool chooses_keys(const Config& c) {
  return c.model_type() == "deepseek_v32" || c.model_type() == "glm_moe_dsa" ||
         c.model_type() == kAxk2;
}

/// Has layers that predict further tokens, all of one kind.
bool predicts(const Config& c) {
  return c.model_type() != kAxk1 && c.model_type() != kAxk2 && c.model_type() != "sarvam_mla";
}

// Dense layers of a config that mentions none.
int64_t usual_dense(std::string_view type) {
  return type == "glm4_moe_lite" || type == kAxk1 || type == kAxk2 || type == "sarvam_mla" ? 1 : 3;
}

// Gives each layer its attention, with an index or without.
void read_mixers(Config& c, ModelSpec& spec, LatentAttentionSpec attention) {
  if (!chooses_keys(c)) {
    const auto mixer = share_mixer(attention);
    for (LayerSpec& layer : spec.layers) layer.mixer = mixer;
    return;
  }
  const bool is_glm = c.model_type() == "glm_moe_dsa";
  const KeyIndexSpec index =
      read_key_index(c, attention, c.bool_or("indexer_rope_interleave", is_glm));
  if (attention.q_lora_rank == 0) {
    c.fail(ErrorCode::kUnsupported, "q_lora_rank is missing, which an index needs for its queries");
  }
  attention.tokens_read = index.tokens_read();
  const std::vector<bool> indexed = read_indexed_layers(c, spec.num_layers(), 1);
  // Either word, by the age of the file.
  (void)read_layer_types(c, spec.num_layers(),
                         {"layer_types", "deepseek_sparse_attention", "indexed_attention"});
  for (size_t i = 0; i < indexed.size(); ++i) {
    attention.index = indexed[i] ? std::optional(index) : std::nullopt;
    spec.layers[i].mixer = share_mixer(attention);
  }
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LatentAttentionSpec attention = read_latent_attention(c, {.interleaved = true});
  if (c.model_type() == kAxk2) {
    attention.gate_in_query = true;
    spec.norm_gate_rank = c.require_int("gated_norm_rank", {1, 1 << 20});
  }
  MoeSpec moe = read_experts(c);
  // Publishers differ in what they leave out, and their code in what that means. Two have no
  // groups without these keys.
  c.expect_present("routed_scaling_factor");
  for (const std::string_view key : {"n_group", "topk_group"}) {
    if (c.model_type() != "sarvam_mla" && c.model_type() != kAxk2) c.expect_present(key);
  }
  read_noaux_tc(c, moe);
  read_shared_experts(c, moe);
  c.expect_number("moe_shared_expert_intermediate_size",
                  static_cast<double>(moe.shared_intermediate_size));
  spec.layers =
      make_layers(c, {}, moe, read_dense_layers(c, num_layers, usual_dense(c.model_type())));
  read_mixers(c, spec, attention);
  // GLM-5.2's last layers share a choice of keys; that one has an index of its own.
  if (predicts(c)) {
    LayerSpec draft;
    draft.moe = moe;
    draft.mixer = spec.layers.front().mixer;
    read_draft_layer(c, spec, "num_nextn_predict_layers", draft);
  }
  return finish_spec(c, std::move(spec));
}

// A.X-K1 has a norm behind the experts. Its files have one in dense layers, too, which nothing
// reads, and none of the router's bias.
NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  if (spec.model_type != kAxk1) return scheme;
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    if (spec.layers[static_cast<size_t>(i)].moe.num_experts > 0) continue;
    for (const std::string& prefix : usual_prefixes()) {
      scheme.ignored_prefixes.push_back(formatted("{}layers.{}.post_mlp_layernorm.", prefix, i));
    }
  }
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  if (spec.model_type != kAxk1) return blocks::make_decoder(spec, weights, {});
  blocks::DecoderOptions options;
  options.names.moe_out_norm = "post_mlp_layernorm";
  ModelSpec as_stored = spec;
  if (blocks::any_layer_has(spec, weights, options.names.router + ".weight") &&
      !blocks::any_layer_has(spec, weights, options.names.correction_bias)) {
    for (LayerSpec& layer : as_stored.layers) layer.moe.correction_bias = false;
  }
  return blocks::make_decoder(as_stored, weights, options);
}

// mlx-lm splits kv_b_proj by heads when it reads, and would quantise what it splits once more.
MlxNames mlx_names(std::string_view) {
  return {.plain_router = true, .plain_modules = {"kv_b_proj"}};
}

}  // namespace

extern const Family family = {{"deepseek_v3", "kimi_k2", "kimi_k25", "glm4_moe_lite",
                               "deepseek_v32", "glm_moe_dsa", "axk1", "axk2", "sarvam_mla"},
                              read_spec,
                              names,
                              create,
                              mlx_names};

}  // namespace moeflux::deepseek_v3
