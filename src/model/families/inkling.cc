// Inkling (text): no rotary positions but a bias by distance, windows in most layers, short
// convolutions of keys, values and of all that layers add, and shared experts that the router
// weighs beside the chosen ones. Inkling-2 has no shared ones; its branches attend to states behind
// blocks of layers, and lengths of heads are bounded in place of normed.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/relative_attention.h"

namespace moeflux::inkling {
namespace {

constexpr std::string_view kSliding = "hybrid_sliding";
constexpr std::string_view kFull = "hybrid";

bool is_second(const Config& c) { return c.model_type().starts_with("inkling2"); }

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
  const auto size = static_cast<float>(spec.head_dim);
  spec.scale = is_second(c) ? 1.0f / std::sqrt(size) : 1.0f / size;  // of normed heads
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

MoeSpec read_router(Config& c, std::string_view width_key) {
  MoeSpec moe = read_experts(c, width_key);
  moe.correction_bias = true;
  moe.router.score = RouterScore::kSigmoid;
  moe.router.scale = static_cast<float>(c.number_or("route_scale", 8.0, 0.0, 1e6));
  return moe;
}

MoeSpec read_moe(Config& c) {
  const bool has_dense_width = c.has("dense_intermediate_size");
  MoeSpec moe = read_router(c, has_dense_width ? "intermediate_size" : "moe_intermediate_size");
  c.expect_bool("shared_expert_sink", true);
  c.expect_bool("norm_after_topk", true);
  c.expect_bool("use_gate_bias", true);
  c.expect_string("gate_activation", "sigmoid");
  c.ignore("rms_norm_eps_moe_gate");  // of a norm that the router has not
  moe.weighed_shared = c.require_int("n_shared_experts", {1, 1024});
  moe.out_scale = c.bool_or("use_global_scale", true);
  return moe;
}

MoeSpec read_second_moe(Config& c) {
  MoeSpec moe = read_router(c, "moe_intermediate_size");
  c.expect_string("scoring_func", "sigmoid");
  c.expect_bool("norm_topk_prob", true);
  c.expect_number("n_shared_experts", 0.0);
  moe.router.normalize = true;
  moe.router.normalize_epsilon = 1e-20f;
  moe.glu = {
      .activation = Activation::kSoftCapped,
      .alpha = static_cast<float>(c.number_or("mlp_up_softcap", 25.0, 1e-3, 1e6)),
      .limit = static_cast<float>(c.number_or("mlp_gate_softcap", 4.0, 1e-3, 1e6)),
  };
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

struct Attentions {
  RelativeAttentionSpec full;
  RelativeAttentionSpec sliding;
};

Attentions read_attentions(Config& c) {
  Attentions kinds{read_attention(c, ""), read_attention(c, "swa_")};
  kinds.full.extent = c.require_int("rel_extent", {1, 1 << 24});
  kinds.full.query_scale = read_query_scale(c);
  kinds.sliding.window = kinds.sliding.extent = c.require_int("sliding_window_size", {1, 1 << 24});
  return kinds;
}

void set_mixers(ModelSpec& spec, const Attentions& kinds, const std::vector<bool>& sliding) {
  const auto full = share_mixer(kinds.full);
  const auto slides = share_mixer(kinds.sliding);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].mixer = sliding[i] ? slides : full;
  }
}

ModelSpec read_first(Config& c, ModelSpec spec) {
  for (const std::string_view key : {"q_bias", "o_bias"}) c.expect_bool(key, false);
  for (const std::string_view key : {"use_embed_norm", "use_sconv"}) c.expect_bool(key, true);
  spec.logit_multiplier =
      static_cast<float>(1.0 / c.number_or("logits_mup_width_multiplier", 24.0, 1e-6, 1e6));
  const int64_t num_layers = read_num_layers(c);
  const Attentions kinds = read_attentions(c);
  LayerSpec layer;
  layer.out_conv_taps = kinds.full.conv_taps;
  if (c.has("rope_theta") || c.has("rope_parameters") || c.has("rope_scaling")) {
    (void)read_rope(c, {.head_dim = kinds.full.head_dim});  // which nothing uses
  }
  const MoeSpec moe = read_moe(c);
  layer.dense_out_scale = moe.out_scale;
  const std::vector<bool> dense = read_dense(c, num_layers);
  const bool has_dense = std::find(dense.begin(), dense.end(), true) != dense.end();
  const std::string_view width =
      c.has("dense_intermediate_size") ? "dense_intermediate_size" : "intermediate_size";
  spec.layers =
      make_layers(layer, moe, dense, has_dense ? c.require_int(width) : c.int_or(width, 1));
  set_mixers(spec, kinds, read_sliding(c, num_layers));
  return spec;
}

// Either spelling: keys of transformers, or an object.
LoopSpec read_loop(Config& c, int64_t num_layers, int64_t block) {
  LoopSpec loop;
  const auto read = [&](Config& from, std::string_view begin, std::string_view end,
                        std::string_view passes, std::string_view rank) {
    loop.begin = from.int_or(begin, 6, {1, 4096});
    loop.end = from.int_or(end, 18, {1, 4096});
    loop.passes = from.int_or(passes, 3, {1, 64});
    loop.gate_rank = from.int_or(rank, 64, {1, 1 << 20});
    for (const auto& [key, value] : {std::pair(begin, loop.begin), std::pair(end, loop.end)}) {
      if (value % block == 0 && value <= num_layers) continue;
      from.fail(ErrorCode::kInvalidArgument,
                formatted("{} {} is not a multiple of n_layers_per_attn_res_block {} up to "
                          "num_hidden_layers {}",
                          key, value, block, num_layers));
    }
    if (loop.end <= loop.begin) {
      from.fail(ErrorCode::kInvalidArgument,
                formatted("{} {} is not above {} {}", end, loop.end, begin, loop.begin));
    }
  };
  if (!c.has("loop_config")) {
    read(c, "loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank");
    return loop;
  }
  Config own = c.object("loop_config");
  read(own, "core_start", "core_end", "num_passes", "gate_rank");
  c.absorb(own);
  for (const std::string_view key :
       {"loop_layer_index_start", "loop_layer_index_end", "loop_num_passes", "loop_gate_rank"}) {
    c.ignore(key);  // the object comes first
  }
  return loop;
}

// Later passes, whose branches all have inputs of their own.
void add_passes(ModelSpec& spec) {
  const LoopSpec& loop = spec.loop;
  for (int64_t pass = 1; pass < loop.passes; ++pass) {
    for (int64_t i = loop.begin; i < loop.end; ++i) {
      LayerSpec layer = spec.layers[static_cast<size_t>(i)];
      layer.moe = {};
      layer.mixer_inputs = 3;
      layer.pass_over = i;
      spec.layers.push_back(layer);
    }
  }
}

ModelSpec read_second(Config& c, ModelSpec spec) {
  const int64_t num_layers = read_num_layers(c);
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 30.0, 1e-3, 1e6));
  spec.block_residual = {.layers = c.int_or("n_layers_per_attn_res_block", 6, {1, 4096}),
                         .sums_normed = true};
  Attentions kinds = read_attentions(c);
  const auto longest = [&](std::string_view key, double usual) {
    return static_cast<float>(c.number_or(key, usual, 1e-3, 1e6));
  };
  for (RelativeAttentionSpec* kind : {&kinds.full, &kinds.sliding}) {
    kind->longest_head = longest("qk_l2_clip_threshold", std::sqrt(512.0));
    kind->longest_shares = longest("rel_l2_clip_threshold", 8.0);
  }
  kinds.full.token_taps = true;
  LayerSpec layer;
  layer.out_conv_taps = kinds.full.conv_taps;
  layer.out_conv_scaled = true;
  layer.moe = read_second_moe(c);
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  const std::vector<bool> sliding = read_sliding(c, num_layers);
  set_mixers(spec, kinds, sliding);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].mixer_inputs = sliding[i] ? 1 : 3;
  }
  if (c.model_type().starts_with("inkling2_loop")) {
    const LoopSpec loop = read_loop(c, num_layers, spec.block_residual.layers);
    if (c.status().ok()) {
      spec.loop = loop;
      add_passes(spec);
    }
  }
  return spec;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.max_position_embeddings =
      c.int_or("model_max_length", spec.max_position_embeddings, {1, 1 << 30});
  c.expect_bool("tie_word_embeddings", false);
  spec.embedding_norm = true;
  read_unpadded_vocab(c, spec);
  spec = is_second(c) ? read_second(c, std::move(spec)) : read_first(c, std::move(spec));
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
                    {"self_attn.sink_proj", "attn.attn_sink_proj"},
                    {"self_attn.gate_proj", "attn.gate_attn"},
                    {"self_attn", "attn"},
                    {"input_layernorm", "attn_norm"},
                    {"post_attention_layernorm", "mlp_norm"},
                    {"mlp.gate.e_score_correction_bias", "mlp.gate.bias"}};
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

extern const Family family = {{"inkling_text", "inkling_mm_model", "inkling2_text", "inkling2",
                               "inkling2_loop_text", "inkling2_loop"},
                              read_spec,
                              names,
                              create,
                              mlx_names};

}  // namespace moeflux::inkling
