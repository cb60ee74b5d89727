// dots3-note: latent attention with lifted latents, a norm of the keys' rotary part and a gate for
// each head; in some layers to tokens that an index has chosen, in the others, of other ranks and
// widths, to a window.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/blocks/decoder.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::dots3_note {
namespace {

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kIndexed = "indexed_attention";
constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kPerLayer = "per_layer_config";

float scale_of(const LatentAttentionSpec& s) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.nope_dim + s.rope_dim)));
}

// `kind` of layers without a window.
LatentAttentionSpec read_full(Config& c, float norm_eps, std::string_view kind) {
  c.assume("rope_theta", 8e7);
  const Json* rope = c.find("rope_parameters");
  if (rope != nullptr && !rope->contains(kind)) kind = kind == kFull ? kIndexed : kFull;
  LatentAttentionSpec s = read_latent_attention(
      c, {.interleaved = true, .wider = c.int_or("head_dim", 0, {1, 4096}), .layer_type = kind});
  for (const std::string_view key : {"attention_gate_type", "swa_attention_gate_type"}) {
    c.expect_string(key, "headwise");
  }
  s.scale = scale_of(s);
  s.latent_norm_eps = norm_eps;
  s.lifts_latents = c.bool_or("apply_mla_qkv_lora_rescale", true);
  s.rope_norm = true;
  s.gate = HeadGate::kPerHead;
  if (s.q_lora_rank == 0) c.fail(ErrorCode::kUnsupported, "q_lora_rank is missing");
  return s;
}

/// Widths of layers with windows: `prefix` begins their keys, `s` and `width`, that of queries, are
/// those of silent configs.
LatentAttentionSpec read_widths(Config& c, std::string_view prefix, LatentAttentionSpec s,
                                int64_t width) {
  const auto read = [&](std::string_view key, int64_t usual, int64_t least) {
    return c.int_or(formatted("{}{}", prefix, key), usual, {least, 1 << 20});
  };
  s.num_heads = read("num_attention_heads", s.num_heads, 1);
  s.q_lora_rank = read("q_lora_rank", s.q_lora_rank, 1);
  s.kv_lora_rank = read("kv_lora_rank", s.kv_lora_rank, 1);
  s.nope_dim = read("qk_nope_head_dim", s.nope_dim, 1);
  s.v_dim = read("v_head_dim", s.v_dim, 1);
  width = read("head_dim", width, 1);
  s.rope_dim = read("qk_rope_head_dim", prefix.empty() ? s.rope_dim : width - s.nope_dim, 2);
  if (s.nope_dim + s.rope_dim != width) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("{0}head_dim is {1}, expected {0}qk_nope_head_dim {2} and "
                     "{0}qk_rope_head_dim {3} together",
                     prefix, width, s.nope_dim, s.rope_dim));
  }
  const std::string kv_heads = formatted("{}num_key_value_heads", prefix);
  c.expect_number(kv_heads, static_cast<double>(s.num_heads));
  return s;
}

/// Layers with windows have widths of their own in per_layer_config, as transformers saves them, or
/// under names of their own.
LatentAttentionSpec read_sliding(Config& c, Config& per_layer, size_t layer,
                                 LatentAttentionSpec s) {
  if (c.has(kPerLayer)) {
    Config own = object_of_layer(per_layer, layer);
    s = read_widths(own, "", s, c.int_or("head_dim", 256, {1, 4096}));
    per_layer.absorb(own);
  } else {
    s.num_heads = 64;
    s.q_lora_rank = s.kv_lora_rank = 1024;
    s.nope_dim = 192;
    s.v_dim = 128;
    s = read_widths(c, "swa_", s, 256);
  }
  c.assume("swa_rope_theta", 5e4);
  const auto width = static_cast<double>(s.nope_dim + s.rope_dim);
  s.rope = read_rope(c, {.head_dim = s.rope_dim,
                         .theta_key = "swa_rope_theta",
                         .interleaved = true,
                         .share_of_wider = static_cast<double>(s.rope_dim) / width,
                         .layer_type = kSliding});
  s.scale = scale_of(s);
  s.window = c.int_or("sliding_window_size", 512, {1, 1 << 30});
  s.window = c.int_or("sliding_window", s.window, {1, 1 << 30});
  return s;
}

std::vector<std::string> read_layer_kinds(Config& c, int64_t num_layers) {
  if (c.has("layer_types")) return c.require_strings("layer_types");
  const bool slides = c.bool_or("use_sliding_window", true);
  std::vector<std::string> kinds;
  for (int64_t i = 0; i < num_layers; ++i) {
    kinds.emplace_back(slides && i >= 2 && i % 4 != 1 ? kSliding : kIndexed);
  }
  return kinds;
}

// Published configs say "full_attention" of layers with an index, unless nothing has one.
std::vector<std::string> read_kinds(Config& c, int64_t num_layers) {
  std::vector<std::string> kinds = read_layer_kinds(c, num_layers);
  if (static_cast<int64_t>(kinds.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("layer_types has {} entries, num_hidden_layers "
                                                  "is {}",
                                                  kinds.size(), num_layers));
  }
  const bool is_published = c.has("use_dsa") || !c.has(kPerLayer);
  const std::string_view wide = c.bool_or("use_dsa", true) ? kIndexed : kFull;
  for (std::string& kind : kinds) {
    if (kind != kFull && kind != kIndexed && kind != kSliding) {
      c.fail(ErrorCode::kUnsupported, formatted("layer_types has \"{}\", known are {}, {} and {}",
                                                kind, kFull, kIndexed, kSliding));
    }
    if (is_published && kind != kSliding) kind = wide;
  }
  kinds.resize(static_cast<size_t>(num_layers), std::string(kFull));
  return kinds;
}

void read_mixers(Config& c, ModelSpec& spec) {
  const std::vector<std::string> kinds = read_kinds(c, spec.num_layers());
  const LatentAttentionSpec full = read_full(c, spec.rms_norm_eps, kFull);
  LatentAttentionSpec indexed = read_full(c, spec.rms_norm_eps, kIndexed);
  if (std::ranges::find(kinds, kIndexed) != kinds.end()) {
    indexed.index = read_key_index(c, indexed, true);
    indexed.tokens_read = indexed.index->tokens_read();
  }
  for (const char* key : {"index_n_heads", "index_head_dim", "index_topk"}) c.ignore(key);
  Config per_layer = c.object(kPerLayer);
  // The first layers alone may have no window.
  if (!c.has(kPerLayer)) (void)read_sliding(c, per_layer, 0, full);
  for (size_t i = 0; i < kinds.size(); ++i) {
    spec.layers[i].mixer = kinds[i] == kSliding
                               ? share_mixer(read_sliding(c, per_layer, i, full))
                               : share_mixer(kinds[i] == kIndexed ? indexed : full);
  }
  // Entries of layers without a window would be left.
  for (const UnreadKey& unread : per_layer.unread()) {
    c.fail(ErrorCode::kUnsupported, formatted("{} is {}, expected layers with windows alone",
                                              unread.name, json_excerpt(unread.value)));
  }
  c.absorb(per_layer);
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  moe.shared_intermediate_size = c.int_or("n_shared_experts", 1, {1, 1024}) *
                                 c.int_or("moe_shared_expert_intermediate_size",
                                          c.int_or("shared_experts_intermediate_size", 1536));
  c.expect_bool("mlp_bias", false);
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers, 1));
  read_mixers(c, spec);
  return finish_spec(c, std::move(spec));
}

MlxNames mlx_names(std::string_view) { return {.plain_modules = {"kv_b_proj"}}; }

}  // namespace

extern const Family family = {
    {"dots3_note", "dots3_note_text"}, read_spec, usual_names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::dots3_note
