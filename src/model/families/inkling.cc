// Inkling (text): no rotary positions but a bias by distance, windows in most layers, short
// convolutions of keys, values and of all that layers add, and shared experts that the router
// weighs beside the chosen ones.
#include <algorithm>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/relative_attention.h"

namespace moeflux {
namespace inkling {
namespace {

constexpr std::string_view kSliding = "hybrid_sliding";
constexpr std::string_view kFull = "hybrid";

// layer_types, or the publisher's list of the layers with a window, or all but each sixth.
std::vector<bool> read_sliding(Config& c, int64_t num_layers) {
  std::vector<bool> sliding(static_cast<size_t>(num_layers), false);
  if (c.has("local_layer_ids") && !c.has("layer_types")) {
    c.ignore("layer_types");
    mark_listed_layers(c, "local_layer_ids", sliding);
    return sliding;
  }
  c.ignore("local_layer_ids");
  const std::vector<std::string> types = read_layer_types(
      c, num_layers, {"layer_types", std::string(kSliding), std::string(kFull), 6});
  for (size_t i = 0; i < types.size(); ++i) sliding[i] = types[i] == kSliding;
  return sliding;
}

// mlp_layer_types, or the number of dense layers that come first.
std::vector<bool> read_dense(Config& c, int64_t num_layers) {
  if (c.has("mlp_layer_types")) {
    c.ignore("dense_mlp_idx");
    return read_dense_layers(c, num_layers);
  }
  std::vector<bool> dense(static_cast<size_t>(num_layers), false);
  const int64_t count = c.int_or("dense_mlp_idx", 0, {0, 4096});
  std::fill_n(dense.begin(), std::min(count, num_layers), true);
  return dense;
}

RelativeAttentionSpec read_attention(Config& c, std::string_view prefix) {
  const auto key = [&](std::string_view name) { return formatted("{}{}", prefix, name); };
  RelativeAttentionSpec spec;
  spec.num_heads = c.require_int(key("num_attention_heads"), {1, 4096});
  spec.num_kv_heads = c.require_int(key("num_key_value_heads"), {1, 4096});
  spec.head_dim = c.require_int(key("head_dim"), {1, 4096});
  spec.scale = 1.0f / static_cast<float>(spec.head_dim);  // heads are normed
  spec.num_profiles = c.require_int("d_rel", {1, 4096});
  const std::string_view taps =
      c.has("sconv_kernel_size") ? "sconv_kernel_size" : "conv_kernel_size";
  spec.conv_taps = c.require_int(taps, {2, 8});
  if (spec.num_heads % spec.num_kv_heads != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("{} {} is not a multiple of {} {}", key("num_attention_heads"), spec.num_heads,
                     key("num_key_value_heads"), spec.num_kv_heads));
  }
  return spec;
}

QueryScale read_query_scale(Config& c) {
  QueryScale scale;
  const double alpha = c.number_or("log_scaling_alpha", 0.1, 0.0, 1e3);
  if (!c.has("log_scaling_n_floor")) return scale;
  scale.beta = alpha;
  scale.period = c.require_int("log_scaling_n_floor", {1, int64_t{1} << 40});
  scale.offset = 1;
  scale.is_smooth = true;
  return scale;
}

MoeSpec read_moe(Config& c) {
  const bool has_dense_width = c.has("dense_intermediate_size");
  MoeSpec moe = read_experts(c, has_dense_width ? "intermediate_size" : "moe_intermediate_size");
  c.expect_bool("shared_expert_sink", true);
  c.expect_bool("norm_after_topk", true);
  c.expect_bool("use_gate_bias", true);
  c.expect_string("gate_activation", "sigmoid");
  c.ignore("rms_norm_eps_moe_gate");  // of a norm that the router has not
  moe.weighed_shared = c.require_int("n_shared_experts", {1, 1024});
  moe.correction_bias = true;
  moe.router.score = RouterScore::kSigmoid;
  moe.router.scale = static_cast<float>(c.number_or("route_scale", 8.0, 0.0, 1e6));
  moe.out_scale = c.bool_or("use_global_scale", true);
  return moe;
}

// The head may have rows for no token, whose logits nobody sees.
void read_unpadded_vocab(Config& c, ModelSpec& spec) {
  const int64_t unpadded = c.int_or("unpadded_vocab_size", spec.vocab_size);
  if (unpadded > spec.vocab_size) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("unpadded_vocab_size {} exceeds vocab_size {}", unpadded, spec.vocab_size));
  }
  if (unpadded >= spec.vocab_size) return;
  spec.padded_vocab_size = spec.vocab_size;
  spec.vocab_size = unpadded;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.max_position_embeddings =
      c.int_or("model_max_length", spec.max_position_embeddings, {1, 1 << 30});
  c.expect_bool("tie_word_embeddings", false);
  for (const std::string_view key : {"q_bias", "o_bias"}) c.expect_bool(key, false);
  for (const std::string_view key : {"use_embed_norm", "use_sconv"}) c.expect_bool(key, true);
  spec.embedding_norm = true;
  spec.logit_multiplier =
      static_cast<float>(1.0 / c.number_or("logits_mup_width_multiplier", 24.0, 1e-6, 1e6));
  read_unpadded_vocab(c, spec);
  const int64_t num_layers = read_num_layers(c);
  RelativeAttentionSpec full = read_attention(c, "");
  full.extent = c.require_int("rel_extent", {1, 1 << 24});
  full.query_scale = read_query_scale(c);
  RelativeAttentionSpec slides = read_attention(c, "swa_");
  slides.window = slides.extent = c.require_int("sliding_window_size", {1, 1 << 24});
  LayerSpec layer;
  layer.out_conv_taps = full.conv_taps;
  if (c.has("rope_theta") || c.has("rope_parameters") || c.has("rope_scaling")) {
    (void)read_rope(c, {.head_dim = full.head_dim});  // which nothing uses
  }
  const MoeSpec moe = read_moe(c);
  layer.dense_out_scale = moe.out_scale;
  const std::vector<bool> dense = read_dense(c, num_layers);
  const bool has_dense = std::find(dense.begin(), dense.end(), true) != dense.end();
  const std::string_view width =
      c.has("dense_intermediate_size") ? "dense_intermediate_size" : "intermediate_size";
  spec.layers =
      make_layers(layer, moe, dense, has_dense ? c.require_int(width) : c.int_or(width, 1));
  const auto all = share_mixer(full);
  const auto some = share_mixer(slides);
  const std::vector<bool> sliding = read_sliding(c, num_layers);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].mixer = sliding[i] ? some : all;
  }
  for (const std::string_view key :
       {"chain_hidden_post_norm", "number_of_conv_states", "audio_bos_token_id"}) {
    c.ignore(key);  // of layers that predict further tokens, and of caches
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  NameScheme scheme = usual_names(spec);
  scheme.prefixes.insert(scheme.prefixes.begin(), "model.llm.");
  scheme.renamed = {{"embed_tokens", "embed"},
                    {"lm_head", "unembed"},
                    {"self_attn.q_proj", "attn.wq_du"},
                    {"self_attn.k_proj", "attn.wk_dv"},
                    {"self_attn.v_proj", "attn.wv_dv"},
                    {"self_attn.r_proj", "attn.wr_du"},
                    {"self_attn.o_proj", "attn.wo_ud"},
                    {"self_attn", "attn"},
                    {"input_layernorm", "attn_norm"},
                    {"post_attention_layernorm", "mlp_norm"},
                    {"mlp.gate.e_score_correction_bias", "mlp.gate.bias"}};
  scheme.ignored_prefixes.emplace_back("model.audio.");
  scheme.ignored_prefixes.emplace_back("model.llm.mtp.");
  return scheme;
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  blocks::DecoderOptions options;
  options.names.embedding_norm = "embed_norm";
  return blocks::make_decoder(spec, weights, options);
}

MlxNames mlx_names(std::string_view) {
  return {.prefix = "model.llm.", .head_prefix = "model.llm."};
}

}  // namespace
}  // namespace inkling

extern const Family inkling_family;
const Family inkling_family = {{"inkling_text", "inkling_mm_model"},
                               inkling::read_spec,
                               inkling::names,
                               inkling::create,
                               inkling::mlx_names};

}  // namespace moeflux
