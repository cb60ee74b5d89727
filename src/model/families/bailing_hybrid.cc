// Ling-3.0: layers of Kimi delta attention with bounded decays, the last of each group of layers
// with gated latent attention, the mixture of DeepSeek-V3 with groups, whose gated units have
// limits in some layers.
#include <utility>

#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/kda.h"
#include "model/mixers/latent_attention.h"

namespace moeflux::bailing_hybrid {
namespace {

constexpr std::string_view kLinear = "linear_attention";
constexpr std::string_view kFull = "full_attention";

KdaSpec read_kda(Config& c, int64_t num_heads) {
  KdaSpec kda;
  // In transformers' own configs head_dim is that of rotary positions.
  kda.head_dim =
      c.require_int(c.has("linear_head_dim") ? "linear_head_dim" : "head_dim", {1, 4096});
  kda.heads = c.int_or("linear_num_heads", num_heads, {1, 4096});
  kda.conv_taps = c.require_int("short_conv_kernel_size", {2, 8});
  c.expect_number("linear_conv_kernel_dim", static_cast<double>(kda.conv_taps));
  c.expect_bool("no_kda_lora", true);
  // Ling-2.5 and 2.6 have the same model_type, another linear attention and no such key.
  c.expect_present("kda_safe_gate");
  if (c.bool_or("kda_safe_gate", true)) {
    kda.decay_bound = static_cast<float>(c.require_number("kda_lower_bound", -1e3, -1e-3));
  } else {
    c.ignore("kda_lower_bound");
  }
  return kda;
}

// The last layer of each group attends in full, and so do those behind the last whole group.
std::vector<bool> read_full_layers(Config& c, int64_t num_layers) {
  const int64_t group = c.require_int("layer_group_size", {1, 4096});
  std::vector<bool> full;
  for (int64_t i = 0; i < num_layers; ++i) {
    full.push_back((i + 1) % group == 0 || i >= num_layers / group * group);
  }
  if (!c.has("layer_types")) return full;
  const std::vector<std::string> types = read_layer_types(
      c, num_layers, {"layer_types", std::string(kLinear), std::string(kFull), group});
  for (size_t i = 0; i < full.size(); ++i) full[i] = types[i] == kFull;
  return full;
}

void ignore_unused(Config& c) {
  for (const std::string_view key :
       {"group_norm_size", "linear_silu", "rotary_dim", "use_qk_norm",
        "num_kv_heads_for_linear_attn", "linear_attention", "max_window_layers"}) {
    c.ignore(key);  // no released implementation reads them
  }
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec = read_trunk(c);
  spec.max_position_embeddings =
      c.int_or("model_max_length", spec.max_position_embeddings, {1, 1 << 30});
  const int64_t num_layers = read_num_layers(c);
  ignore_unused(c);
  c.expect_string("gated_attention_proj_granularity_type", "head_wise");
  for (const std::string_view key : {"use_qkv_bias", "use_kda_lora", "use_mla_nope", "use_nGPT",
                                     "scale_router_input", "up_proj_norm", "value_norm"}) {
    c.expect_bool(key, false);
  }
  // Published configs have the share that turns of head_dim, which is the width of linear heads.
  LatentAttentionSpec attention =
      read_latent_attention(c, {.interleaved = true, .wider = c.int_or("head_dim", 0, {1, 4096})});
  attention.gate = HeadGate::kPerHead;
  const auto full = share_mixer(attention);
  const auto linear = share_mixer(read_kda(c, attention.num_heads));
  MoeSpec moe = read_experts(c);
  c.expect_bool("moe_router_enable_expert_bias", true);
  if (!c.has("num_expert_group")) c.assume("n_group", 8);
  c.assume("topk_group", 4);
  c.assume("routed_scaling_factor", 2.5);
  read_noaux_tc(c, moe);
  read_shared_experts(c, moe);
  moe.shared_intermediate_size =
      c.int_or("moe_shared_expert_intermediate_size", moe.shared_intermediate_size);
  spec.layers = make_layers(c, {}, moe, read_dense_layers(c, num_layers, 2));
  const std::vector<bool> pattern = read_full_layers(c, num_layers);
  // Neither the publisher's modelling file nor transformers reads the limits; the publisher's
  // code in sglang does, and without them texts go wrong.
  const auto units = read_capped_units(c, "expert_swiglu_limit_list", num_layers);
  const auto shared = read_capped_units(c, "share_expert_swiglu_limit_list", num_layers);
  for (size_t i = 0; i < pattern.size(); ++i) {
    spec.layers[i].mixer = pattern[i] ? full : linear;
    spec.layers[i].moe.glu = units[i];
    spec.layers[i].moe.shared_glu = shared[i];
  }
  return finish_spec(c, std::move(spec));
}

NameScheme names(const ModelSpec& spec) {
  return usual_names(spec, {{"embed_tokens", "word_embeddings"},
                            {"self_attn.o_proj", "attention.dense"},
                            {"self_attn", "attention"},
                            {"mlp.gate.e_score_correction_bias", "mlp.gate.expert_bias"}});
}

}  // namespace

extern const Family family = {{"bailing_hybrid"}, read_spec, names};

}  // namespace moeflux::bailing_hybrid
