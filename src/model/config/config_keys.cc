#include "model/config/config_keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"

namespace moeflux {
namespace {

// Lists of names, divided by spaces and ends of lines.
bool lists(std::string_view names, std::string_view name) {
  if (name.empty() || name.find_first_of(" \n") != std::string_view::npos) return false;
  for (size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool begins = at == 0 || names[at - 1] == ' ' || names[at - 1] == '\n';
    if (begins && (end == names.size() || names[end] == ' ' || names[end] == '\n')) return true;
  }
  return false;
}

// The base class of transformers' configs wrote its sampling and training defaults into every file
// for years, so old checkpoints carry all of them.
constexpr std::string_view kHarmlessKeys = R"(
architectures attn_implementation auto_map aux_loss_alpha dropout dtype
enable_moe_fp32_combine ep_size
finetuning_task id2label ignore_index label2id language_config language_model_only llm_config
mamba_ssm_dtype
max_window_layers model_max_length model_type moe_router_dtype moe_shared_expert_overlap mtp
name_or_path num_logits_to_keep num_nextn_predict_layers output_attentions output_hidden_states
output_router_logits prefix pretraining_tp problem_type pruned_heads quantization
quantization_config residual_in_fp32 return_dict router_dtype seq_aux task_specific_params
text_config tf_legacy_loss tie_encoder_decoder tokenizer_class torch_dtype torchscript
transformers_version unsloth_fixed unsloth_version use_bfloat16 use_cache
use_unified_vision_chunk
bad_words_ids begin_suppress_tokens chunk_size_feed_forward diversity_penalty do_sample
early_stopping encoder_no_repeat_ngram_size exponential_decay_length_penalty length_penalty
max_length min_length no_repeat_ngram_size num_beam_groups num_beams num_return_sequences
output_scores remove_invalid_values repetition_penalty return_dict_in_generate suppress_tokens
temperature top_k top_p typical_p)";

// Layers of multi-token prediction and the sides of a model that turn images and sound into tokens
// are not evaluated here.
constexpr std::array<std::string_view, 10> kHarmlessBeginnings = {
    "audio_", "dspark_", "image_",  "initializer_", "mm_",
    "mtp_",   "_",       "num_mtp", "video_",       "vision_"};
constexpr std::array<std::string_view, 9> kHarmlessEndings = {
    "_dropout", "_dropout_prob", "_initializer_range", "_jitter_noise", "_loss_coef",
    "_pdrop",   "_token_id",     "_token_ids",         "_token_index"};

// Ends the key of what scales queries by their position; a family's name begins it.
constexpr std::string_view kScalingByPosition = "_scaling_beta";

/// Values of a key that do not change a computation that knows nothing of the key. Null always
/// does, and a list does when each of its items does.
enum class Neutral : uint8_t { kNull, kOne, kOff, kOn };

struct KeyGroup {
  Neutral neutral;
  std::string_view keys;
};

// From the configs of transformers 5.23 and of publishers' own code: Granite, Cohere, Falcon-H1,
// MiniCPM, MiniMax, Gemma, Llama 4, Mistral 4, Step, Laguna, Hunyuan, DeepSeek-V3.2 and V4, GLM-5,
// Qwen4, LongCat, SmolLM3 and their like.
constexpr std::array<KeyGroup, 4> kChangingKeys = {{
    {Neutral::kOne, R"(
attn_factor extrapolation_factor
attention_in_multiplier attention_out_multiplier attention_value_scale decoder_sparse_step
embed_scale embedding_multiplier embedding_scale full_attn_alpha_factor full_attn_beta_factor
interleave_moe_layer_step key_multiplier layernorm_full_attention_alpha
layernorm_full_attention_beta layernorm_linear_attention_alpha layernorm_linear_attention_beta
layernorm_mlp_alpha layernorm_mlp_beta linear_attn_alpha_factor linear_attn_beta_factor
lm_head_multiplier logit_scale logits_mup_width_multiplier logits_scaling mlp_alpha_factor
mlp_beta_factor mlp_multipliers moe_layer_freq moe_layer_interval no_rope_layers
output_multiplier qk_scale_factor residual_multiplier residual_scale rope_ratio rotary_pct
scale_emb ssm_in_multiplier ssm_multipliers ssm_out_multiplier)"},
    {Neutral::kOff, R"(
expert_swiglu_limit_list share_expert_swiglu_limit_list
activation_sparsity_pattern add_bias_linear add_cross_attention add_full_attention_sink_bias
add_qkv_bias add_swa_attention_sink_bias alibi altup_num_inputs
apply_residual_connection_post_layernorm attention_bias attention_chunk_size attention_gate
attention_k_eq_v attention_out_bias attention_sink_bias attention_window_size
attn_logit_softcapping attn_output_gate attn_temperature_tuning clip_qkv compress_rope_theta
cross_attention_layers final_logit_softcapping first_k_dense_replace gated_norm_rank gating
global_attn_every_n_layers hc_count hc_mult hidden_size_per_layer_input index_topk
index_topk_blocks indexer_budget is_encoder_decoder kv_source_layers laurel_rank
layer_rope_theta lm_head_bias log_scaling_alpha logits_soft_cap mlp_bias
mlp_gate_softcap mlp_only_layers mlp_up_softcap moe_apply_router_weight_on_input
moe_latent_size moe_num_shared_experts moe_router_logit_softcapping mup_enabled
n_shared_experts ngram_vocab_size_base no_rope_layer_interval norm_after
num_attention_heads_per_layer num_dense_layers num_hash_layers num_kv_shared_layers
num_shared_experts num_sliding_attention_heads output_gate_type parallel_attn per_layer_config
ple_embed_dim qk_l2_clip_threshold qkv_bias rel_l2_clip_threshold rope_interleave
rope_local_base_freq rope_scaling router_bias router_logit_softcapping scale_embedding
shared_expert_sink sliding_window sliding_window_pattern sliding_window_size swa_rope_theta
swiglu_limits swiglu_limits_shared swin_norm use_alibi use_attention_gate use_attention_sinks
use_bias use_bidirectional_attention use_double_wide_mlp use_expert_bias use_mem_rope
use_parallel_residual use_post_norm use_qkv_bias use_sandwich_norm use_sliding_window
zero_expert_num)"},
    {Neutral::kOn, "apply_yarn_scaling enable_moe_block is_causal use_rope"},
    {Neutral::kNull, "dim_model_base moe_layers residual_gate_temperature scale_depth"},
}};

bool is_neutral(const Json& value, Neutral neutral) {
  if (value.is_null()) return true;
  if (value.is_array()) {
    return std::all_of(value.begin(), value.end(),
                       [&](const Json& item) { return is_neutral(item, neutral); });
  }
  switch (neutral) {
    case Neutral::kNull:
      return false;
    case Neutral::kOne:
      return value.is_number() && value.get<double>() == 1.0;
    case Neutral::kOff:
      return value == false || value == "" || value == "none" || value == Json::object() ||
             (value.is_number() && value.get<double>() == 0.0);
    case Neutral::kOn:
      return value == true;
  }
  __builtin_unreachable();
}

Json layer_types(const ModelSpec& spec) {
  Json types = Json::array();
  for (const LayerSpec& layer : spec.layers) {
    types.push_back(layer.mixer->config_value("layer_type"));
  }
  return types;
}

Json mlp_layer_types(const ModelSpec& spec) {
  Json types = Json::array();
  for (const LayerSpec& layer : spec.layers) {
    types.push_back(layer.moe.num_experts > 0 ? "sparse" : "dense");
  }
  return types;
}

// Scales, norms and widths of attention: of layers that differ in one, nothing.
Json attention_says(const ModelSpec& spec, std::string_view key) {
  Json value;
  for (const LayerSpec& layer : spec.layers) {
    const Json own = layer.mixer->config_value(key);
    if (own.is_null()) continue;
    if (!value.is_null() && value != own) return nullptr;
    value = own;
  }
  return value;
}

// Values that a spec has under other families' names.
struct SpecKeys {
  std::string_view keys;
  Json (*says)(const ModelSpec& spec, std::string_view key);
};

constexpr std::array<SpecKeys, 17> kSpecKeys = {{
    {"attention_multiplier query_pre_attn_scalar rotary_dim", attention_says},
    {"use_qk_norm qk_layernorm qk_norm",
     [](const ModelSpec& s, std::string_view) { return attention_says(s, "qk_norm"); }},
    {"layer_types", [](const ModelSpec& s, std::string_view) { return layer_types(s); }},
    {"mlp_layer_types", [](const ModelSpec& s, std::string_view) { return mlp_layer_types(s); }},
    {"activation_function hidden_activation mlp_hidden_act",
     [](const ModelSpec& s, std::string_view) {
       const bool silu = last_moe(s).glu.activation == Activation::kSilu;
       return Json(silu ? "silu" : "gelu_pytorch_tanh");
     }},
    {"swiglu_alpha",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).glu.alpha); }},
    {"swiglu_limit",
     [](const ModelSpec& s, std::string_view) {
       const float limit = last_moe(s).glu.limit;
       return Json(std::isinf(limit) ? 0.0f : limit);
     }},
    {"expert_selection_fn score_function scoring_func",
     [](const ModelSpec& s, std::string_view) {
       const bool sigmoid = last_moe(s).router.score == RouterScore::kSigmoid;
       return Json(sigmoid ? "sigmoid" : "softmax");
     }},
    {"topk_method",
     [](const ModelSpec& s, std::string_view) {
       if (last_moe(s).correction_bias) return Json("noaux_tc");
       return Json(last_moe(s).router.num_groups > 1 ? "group_limited_greedy" : "greedy");
     }},
    {"use_routing_bias",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).correction_bias); }},
    {"moe_renormalize norm_topk_prob",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).router.normalize); }},
    {"moe_routed_scaling_factor moe_router_scaling_factor route_scale routed_scaling_factor "
     "router_scaling_factor",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).router.scale); }},
    {"n_group num_expert_group",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).router.num_groups); }},
    {"topk_group",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).router.groups_kept); }},
    {"moe_k moe_top_k moe_topk",
     [](const ModelSpec& s, std::string_view) { return Json(last_moe(s).experts_per_token); }},
    {"moe_shared_expert_intermediate_size share_expert_dim shared_expert_intermediate_size "
     "shared_intermediate_size",
     [](const ModelSpec& s, std::string_view) {
       return Json(last_moe(s).shared_intermediate_size);
     }},
    {"position_embedding_type", [](const ModelSpec&, std::string_view) { return Json("rope"); }},
}};

// Numbers of configs are decimal and those of specs f32.
bool same(const Json& a, const Json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  const auto x = a.get<double>();
  const auto y = b.get<double>();
  return std::abs(x - y) <= 1e-6 * std::max(std::abs(x), std::abs(y));
}

}  // namespace

bool is_harmless_key(std::string_view key) {
  const auto begins = [&](std::string_view part) { return key.starts_with(part); };
  const auto ends = [&](std::string_view part) { return key.ends_with(part); };
  return lists(kHarmlessKeys, key) ||
         std::any_of(kHarmlessBeginnings.begin(), kHarmlessBeginnings.end(), begins) ||
         std::any_of(kHarmlessEndings.begin(), kHarmlessEndings.end(), ends);
}

KeyMeaning meaning_of(const ModelSpec& spec, std::string_view key, const Json& value) {
  const auto meaning = [](bool neutral) {
    return neutral ? KeyMeaning::kNeutral : KeyMeaning::kChanges;
  };
  if (key.ends_with(kScalingByPosition)) return meaning(is_neutral(value, Neutral::kOff));
  for (const KeyGroup& group : kChangingKeys) {
    if (lists(group.keys, key)) return meaning(is_neutral(value, group.neutral));
  }
  for (const SpecKeys& known : kSpecKeys) {
    if (lists(known.keys, key))
      return meaning(value.is_null() || same(value, known.says(spec, key)));
  }
  return KeyMeaning::kUnknown;
}

}  // namespace moeflux
