// dots3-note: latent attention with lifted latents, a norm of the keys' rotary part and a gate for
// each head; in some layers to tokens that an index has chosen, in the others, of other ranks and
// widths, to a window.
#include <cmath>
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

float scale_of(const LatentAttentionSpec& s) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(s.nope_dim + s.rope_dim)));
}

LatentAttentionSpec read_full(Config& c, float norm_eps) {
  c.assume("rope_theta", 8e7);
  const Json* rope = c.find("rope_parameters");
  LatentAttentionSpec s = read_latent_attention(
      c, {.interleaved = true,
          .wider = c.int_or("head_dim", 0, {1, 4096}),
          .layer_type = rope != nullptr && rope->contains(kFull) ? kFull : kIndexed});
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

LatentAttentionSpec read_sliding(Config& c, LatentAttentionSpec s) {
  s.num_heads = c.int_or("swa_num_attention_heads", 64, {1, 4096});
  s.q_lora_rank = c.int_or("swa_q_lora_rank", 1024, {1, 1 << 20});
  s.kv_lora_rank = c.int_or("swa_kv_lora_rank", 1024, {1, 1 << 20});
  s.nope_dim = c.int_or("swa_qk_nope_head_dim", 192, {1, 4096});
  s.v_dim = c.int_or("swa_v_head_dim", 128, {1, 4096});
  const int64_t width = c.int_or("swa_head_dim", 256, {1, 4096});
  s.rope_dim = c.int_or("swa_qk_rope_head_dim", width - s.nope_dim, {2, 4096});
  if (s.nope_dim + s.rope_dim != width) {
    c.fail(ErrorCode::kInvalidArgument,
           formatted("swa_head_dim is {}, expected swa_qk_nope_head_dim {} and "
                     "swa_qk_rope_head_dim {} together",
                     width, s.nope_dim, s.rope_dim));
  }
  c.expect_number("swa_num_key_value_heads", static_cast<double>(s.num_heads));
  c.assume("swa_rope_theta", 5e4);
  s.rope =
      read_rope(c, {.head_dim = s.rope_dim,
                    .theta_key = "swa_rope_theta",
                    .interleaved = true,
                    .share_of_wider = static_cast<double>(s.rope_dim) / static_cast<double>(width),
                    .layer_type = kSliding});
  s.scale = scale_of(s);
  s.window = c.int_or("sliding_window_size", 512, {1, 1 << 30});
  s.window = c.int_or("sliding_window", s.window, {1, 1 << 30});
  return s;
}

std::vector<bool> read_windows(Config& c, int64_t num_layers) {
  std::vector<bool> windows;
  const bool slides = c.bool_or("use_sliding_window", true);
  if (!c.has("layer_types")) {
    for (int64_t i = 0; i < num_layers; ++i) windows.push_back(slides && i >= 2 && i % 4 != 1);
    return windows;
  }
  const std::vector<std::string> types = c.require_strings("layer_types");
  if (static_cast<int64_t>(types.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument, formatted("layer_types has {} entries, num_hidden_layers "
                                                  "is {}",
                                                  types.size(), num_layers));
  }
  for (const std::string& type : types) {
    if (type != kFull && type != kIndexed && type != kSliding) {
      c.fail(ErrorCode::kUnsupported, formatted("layer_types has \"{}\", known are {}, {} and {}",
                                                type, kFull, kIndexed, kSliding));
    }
    windows.push_back(type == kSliding);
  }
  windows.resize(static_cast<size_t>(num_layers));
  return windows;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  const int64_t num_layers = read_num_layers(c);
  LatentAttentionSpec full = read_full(c, spec.rms_norm_eps);
  const auto sliding = share_mixer(read_sliding(c, full));
  // An older word for layers with an index, unless nothing has one.
  if (c.bool_or("use_dsa", true)) {
    full.index = read_key_index(c, full, true);
    full.tokens_read = full.index->tokens_read();
  } else {
    for (const char* key : {"index_n_heads", "index_head_dim", "index_topk"}) c.ignore(key);
  }
  const auto wide = share_mixer(full);
  const std::vector<bool> windows = read_windows(c, num_layers);
  MoeSpec moe = read_experts(c);
  c.expect_present("routed_scaling_factor");
  read_noaux_tc(c, moe);
  moe.shared_intermediate_size = c.int_or("n_shared_experts", 1, {1, 1024}) *
                                 c.int_or("moe_shared_expert_intermediate_size",
                                          c.int_or("shared_experts_intermediate_size", 1536));
  c.expect_bool("mlp_bias", false);
  c.assume("first_k_dense_replace", 1);
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers));
  for (size_t i = 0; i < windows.size(); ++i) {
    spec.layers[i].mixer = windows[i] ? sliding : wide;
  }
  return finish_spec(c, std::move(spec));
}

MlxNames mlx_names(std::string_view) { return {.plain_modules = {"kv_b_proj"}}; }

}  // namespace

extern const Family family = {
    {"dots3_note", "dots3_note_text"}, read_spec, usual_names, blocks::make_decoder, mlx_names};

}  // namespace moeflux::dots3_note
