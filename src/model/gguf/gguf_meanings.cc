#include "model/gguf/gguf_meanings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"

namespace moeflux {
namespace {

// Values of a key with which it changes nothing. All elements of an array must have one.
enum class NeutralValue : uint8_t { kZero, kZeroOrOne, kTrue, kNone, kSilu };

struct Group {
  NeutralValue neutral;
  std::string_view keys;
};

// From the lists of llama.cpp (src/llama-arch.cpp; gguf 0.19 of PyPI) and of Ollama's converter.
constexpr std::array<Group, 5> kChanging = {{
    {NeutralValue::kZero, R"(
activation_sparsity_scale altup.num_inputs attention.clamp_kqv attention.max_alibi_bias
attention.relative_buckets_count attention.shared_kv_layers attention.sink_enabled
attention.temperature_length attention.temperature_scale dense_layers
embedding_length_per_layer_input experts_per_group hash_layer_count moe_latent_size
rescale_every_n_layers rope.scaling.alpha rope.scaling.yarn_log_multiplier swiglu_clamp_exp
swiglu_clamp_shexp swin_norm token_shift_count use_parallel_residual)"},
    {NeutralValue::kZeroOrOne, R"(
attention.output_scale attention.value_scale decoder_sparse_step expert_group_scale
full_attention_interval hyper_connection.count interleave_moe_layer_step moe_every_n_layers
rope.scale_linear rope.scaling.attn_factor rope.scaling.factor rope.swa.scaling.factor)"},
    {NeutralValue::kTrue, "attention.causal"},
    {NeutralValue::kNone, "rope.scaling.type rope.swa.scaling.type"},
    {NeutralValue::kSilu, "hidden_activation"},
}};

// Say how a model was made or is used, or again what tensors and other keys say.
constexpr std::string_view kHarmless = R"(
attention.gating_type attention.layer_norm_epsilon attention.qk_norm attention.recurrent_layers
attention.indexer.types classifier.output_labels context_length decoder_start_token_id
deepstack_mapping embedding_length_out expert_shared_count expert_shared_feed_forward_length
feed_forward_length leading_dense_block_count mrope_interleaved n_deepstack_layers
nextn_predict_layers pooling_type
rope.dimension_sections rope.mrope_interleaved rope.partial_rotary_factor rope.scaling.finetuned
rope.scaling.original_context_length rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow
rope.swa.partial_rotary_factor ssm.v_head_reordered tensor_data_layout vocab_size)";
constexpr std::array<std::string_view, 6> kHarmlessGgufBeginnings = {
    "vision.", "audio.", "clip.", "mtp.", "image_", "vision_"};

struct Names {
  std::string_view config;
  std::string_view stored;
  bool is_judged = false;  // by the model's spec, where no architecture has asked for it
};

constexpr auto kFieldNames = std::to_array<Names>({
    {"num_hidden_layers", "block_count"},
    {"hidden_size", "embedding_length"},
    {"vocab_size", "vocab_size"},
    {"max_position_embeddings", "context_length"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"layer_norm_eps", "attention.layer_norm_epsilon"},
    {"num_attention_heads", "attention.head_count"},
    {"num_attention_heads_per_layer", "attention.head_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"head_dim", "attention.key_length"},
    {"attention_multiplier", "attention.scale", true},
    {"sliding_window", "attention.sliding_window", true},
    {"layer_types", "attention.sliding_window_pattern"},
    {"q_lora_rank", "attention.q_lora_rank"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"qk_nope_head_dim", "attention.key_length_mla"},
    {"qk_rope_head_dim", "rope.dimension_count"},
    {"v_head_dim", "attention.value_length_mla"},
    {"index_n_heads", "attention.indexer.head_count"},
    {"index_head_dim", "attention.indexer.key_length"},
    {"index_topk", "attention.indexer.top_k"},
    {"index_kpool", "attention.indexer.kpool"},
    {"attn_logit_softcapping", "attn_logit_softcapping", true},
    {"router_logit_softcapping", "router_logit_softcapping", true},
    {"final_logit_softcapping", "final_logit_softcapping", true},
    {"logit_scale", "logit_scale", true},
    {"embedding_scale", "embedding_scale", true},
    {"residual_scale", "residual_scale", true},
    {"rope_theta", "rope.freq_base"},
    {"swa_rope_theta", "rope.freq_base_swa"},
    {"compress_rope_theta", "attention.compress_rope_freq_base"},
    {"partial_rotary_factor", "rope.dimension_count"},
    {"rope_type", "rope.scaling.type"},
    {"factor", "rope.scaling.factor"},
    {"attention_factor", "rope.scaling.attn_factor"},
    {"beta_fast", "rope.scaling.yarn_beta_fast"},
    {"beta_slow", "rope.scaling.yarn_beta_slow"},
    {"original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"intermediate_size", "feed_forward_length"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"shared_intermediate_size", "expert_shared_feed_forward_length"},
    {"n_shared_experts", "expert_shared_count"},
    {"n_group", "expert_group_count", true},
    {"topk_group", "expert_group_used_count", true},
    {"norm_topk_prob", "expert_weights_norm", true},
    {"routed_scaling_factor", "expert_weights_scale", true},
    {"moe_routed_scaling_factor", "expert_weights_scale"},
    {"moe_router_logit_softcapping", "router_logit_softcapping"},
    {"scoring_func", "expert_gating_func", true},
    {"first_k_dense_replace", "leading_dense_block_count"},
    {"num_dense_layers", "leading_dense_block_count"},
    {"conv_L_cache", "shortconv.l_cache"},
    {"swiglu_limit", "swiglu_clamp_exp"},
    {"hc_mult", "hyper_connection.count"},
    {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"},
    {"hc_eps", "hyper_connection.epsilon"},
    {"linear_num_key_heads", "ssm.group_count"},
    {"linear_num_value_heads", "ssm.time_step_rank"},
    {"linear_key_head_dim", "ssm.state_size"},
    {"linear_value_head_dim", "ssm.inner_size"},
    {"linear_conv_kernel_dim", "ssm.conv_kernel"},
    {"moe_latent_size", "moe_latent_size"},
    // Single families have these.
    {"num_shared_experts", "expert_shared_count"},
    {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"share_expert_dim", "expert_shared_feed_forward_length"},
    {"moe_router_scaling_factor", "expert_weights_scale"},
    {"norm_expert_weight", "expert_weights_norm"},
    {"route_norm", "expert_weights_norm"},
    {"dense_intermediate_size", "feed_forward_length"},
    {"prefix_dense_intermediate_size", "feed_forward_length"},
    {"intermediate_size_mlp", "feed_forward_length"},
    {"moe_layer_interval", "interleave_moe_layer_step"},
    {"interleave_moe_layer_step", "interleave_moe_layer_step"},
    {"moe_layer_start_index", "leading_dense_block_count"},
    {"num_hash_layers", "hash_layer_count"},
    {"rotary_dim", "rope.dimension_count"},
    {"mscale_all_dim", "rope.scaling.yarn_log_multiplier"},
    {"attention_value_scale", "attention.value_scale"},
    {"num_kv_shared_layers", "attention.shared_kv_layers"},
    {"o_groups", "attention.output_group_count"},
    {"o_lora_rank", "attention.output_lora_rank"},
    {"sparse_num_index_heads", "attention.indexer.head_count"},
    {"sparse_index_dim", "attention.indexer.key_length"},
    {"sparse_topk_blocks", "attention.indexer.top_k"},
    {"sparse_block_size", "attention.indexer.block_size"},
    {"sparse_local_block", "attention.indexer.local_blocks"},
    {"indexer_n_heads", "attention.indexer.head_count"},
    {"indexer_head_dim", "attention.indexer.key_length"},
    {"indexer_budget", "attention.indexer.top_k"},
    {"indexer_compress_ratio", "attention.compress_ratios"},
    {"linear_head_dim", "kda.head_dim"},
    {"linear_num_heads", "attention.head_count"},
    {"linear_lower_bound", "kda.gate_lower_bound"},
    {"kda_lower_bound", "kda.gate_lower_bound"},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input"},
    {"embedding_multiplier", "embedding_scale"},
    {"residual_multiplier", "residual_scale"},
    {"logits_scaling", "logit_scale"},
    {"hc_count", "hyper_connection.count"},
    {"hc_lowrank", "hyper_connection.low_rank"},
    {"ple_conv_kernel_size", "ple.conv_kernel"},
    {"eos_token_id", "ple.eos_token_id"},
});

bool lists_key(std::string_view names, std::string_view name) {
  for (size_t at = names.find(name); at != std::string_view::npos; at = names.find(name, at + 1)) {
    const size_t end = at + name.size();
    const auto divides = [](char c) { return c == ' ' || c == '\n'; };
    if ((at == 0 || divides(names[at - 1])) && (end == names.size() || divides(names[end]))) {
      return true;
    }
  }
  return false;
}

bool is_harmless(std::string_view key) {
  const auto begins = [&](std::string_view part) { return key.starts_with(part); };
  return lists_key(kHarmless, key) || key.ends_with("_token_id") || key.ends_with("_token_ids") ||
         std::any_of(kHarmlessGgufBeginnings.begin(), kHarmlessGgufBeginnings.end(), begins);
}

/// A number, or a truth value as 0 or 1.
std::optional<double> number_of(const gguf::Value& value) {
  if (const auto* number = std::get_if<int64_t>(&value.data)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<uint64_t>(&value.data)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag ? 1.0 : 0.0;
  return std::nullopt;
}

/// All numbers of a value; nullopt where it is none.
std::optional<std::vector<double>> numbers_of(const GgufKeys& keys, std::string_view full,
                                              const gguf::Value& value) {
  if (const auto number = number_of(value)) return std::vector<double>{*number};
  if (value.type != gguf::ValueType::kArray) return std::nullopt;
  const auto ints = keys.model().keys().ints(full);
  if (ints.ok()) return std::vector<double>(ints->begin(), ints->end());
  const auto floats = keys.model().keys().numbers(full);
  if (floats.ok()) return *floats;
  return std::nullopt;
}

bool is_neutral(const GgufKeys& keys, std::string_view full, const gguf::Value& value,
                NeutralValue neutral) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (neutral == NeutralValue::kNone) {
    return text != nullptr && (text->empty() || *text == "none" || *text == "default" ||
                               *text == "linear");  // whose factor is judged by itself
  }
  if (neutral == NeutralValue::kSilu)
    return text != nullptr && (*text == "silu" || *text == "swish");
  const auto numbers = numbers_of(keys, full, value);
  return numbers && std::all_of(numbers->begin(), numbers->end(), [&](double number) {
           if (neutral == NeutralValue::kTrue) return number == 1.0;
           return number == 0.0 || (neutral == NeutralValue::kZeroOrOne && number == 1.0);
         });
}

/// As far as a message wants it.
Json shown(const gguf::Value& value) {
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  if (const auto* number = std::get_if<int64_t>(&value.data)) return *number;
  if (const auto* number = std::get_if<double>(&value.data)) {
    return std::isfinite(*number) ? Json(*number) : Json(formatted("{}", *number));
  }
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  return std::string(gguf::value_type_name(value.type));
}

/// The value in a config.json for the value of a key that the spec is compared with; null where the
/// key says that there is nothing of it.
Json as_config(std::string_view key, const gguf::Value& value) {
  const auto number = number_of(value);
  if (key == "expert_gating_func") {
    if (!number || *number < 1.0 || *number > 2.0) return shown(value);
    return *number == 1.0 ? "softmax" : "sigmoid";
  }
  const bool is_flag = std::holds_alternative<bool>(value.data);
  // 0 says that llama.cpp's default holds.
  if (!is_flag && number == 0.0) return nullptr;
  return shown(value);
}

}  // namespace

void judge_unread_gguf_keys(GgufKeys& keys, Json& config) {
  for (const std::string& key : keys.unread()) {
    const std::string full = formatted("{}.{}", keys.architecture(), key);
    const gguf::Value& value = *keys.model().keys().find(full);
    if (is_harmless(key)) continue;
    const auto group = std::find_if(kChanging.begin(), kChanging.end(),
                                    [&](const Group& one) { return lists_key(one.keys, key); });
    if (group != kChanging.end()) {
      if (is_neutral(keys, full, value, group->neutral)) continue;
      keys.fail(ErrorCode::kUnsupported,
                formatted("key {} is {}, which is not supported for this architecture", full,
                          json_excerpt(shown(value))));
      continue;
    }
    const auto name = std::find_if(kFieldNames.begin(), kFieldNames.end(), [&](const Names& one) {
      return one.is_judged && one.stored == key;
    });
    if (name == kFieldNames.end()) {
      config[full] = shown(value);
    } else if (!config.contains(std::string(name->config))) {
      config[std::string(name->config)] = as_config(key, value);
    }
  }
}

// Families word their messages with names of config.json, so each of them in a message is replaced,
// and so are the objects around them.
std::string gguf_message(std::string_view message, std::string_view file, const GgufKeys& keys) {
  constexpr std::array<std::string_view, 2> kObjects = {"rope_scaling: ", "rope_parameters: "};
  constexpr std::string_view kConfig = "config.json";
  const auto is_of_name = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  std::string all;
  while (!message.empty()) {
    const auto object = std::find_if(kObjects.begin(), kObjects.end(), [&](std::string_view one) {
      return message.starts_with(one);
    });
    if (object != kObjects.end()) {
      message.remove_prefix(object->size());
      continue;
    }
    if (message.starts_with(kConfig)) {
      all += file;
      message.remove_prefix(kConfig.size());
      continue;
    }
    const auto end = std::find_if_not(message.begin(), message.end(), is_of_name);
    const auto length = std::max<size_t>(static_cast<size_t>(end - message.begin()), 1);
    const std::string_view word = message.substr(0, length);
    const auto known = std::find_if(kFieldNames.begin(), kFieldNames.end(),
                                    [&](const Names& one) { return one.config == word; });
    all += known == kFieldNames.end() ? std::string(word) : keys.full(known->stored);
    message.remove_prefix(length);
  }
  return all;
}

std::string_view gguf_other_part(std::string_view tensor) {
  constexpr std::string_view kPictures = "a picture encoder";
  constexpr std::string_view kSounds = "a sound encoder";
  constexpr std::string_view kDrafts = "draft blocks";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kParts = {{
      {"a.", kSounds},
      {"mm.a.", kSounds},
      {"audio.", kSounds},
      {"audio_tower.", kSounds},
      {"model.audio_tower.", kSounds},
      {"v.", kPictures},
      {"mm.", kPictures},
      {"vision.", kPictures},
      {"visual.", kPictures},
      {"vision_tower.", kPictures},
      {"model.vision_tower.", kPictures},
      {"model.visual.", kPictures},
      {"mtp.", kDrafts},
      {"model.mtp.", kDrafts},
      {"nextn.", kDrafts},
  }};
  for (const auto& [beginning, part] : kParts) {
    if (tensor.starts_with(beginning)) return part;
  }
  return {};
}

std::string gguf_parts_left_alone(const gguf::Container& model, int64_t num_layers) {
  std::map<std::string_view, int64_t> counts;
  for (const gguf::TensorInfo& tensor : model.tensors()) {
    const std::string_view name = tensor.name;
    std::string_view part = gguf_other_part(name);
    int64_t block = 0;
    if (name.starts_with("blk.") &&
        std::from_chars(name.data() + 4, name.data() + name.size(), block).ec == std::errc() &&
        block >= num_layers) {
      part = "draft blocks";
    }
    if (!part.empty()) ++counts[part];
  }
  std::string list;
  for (const auto& [part, count] : counts) {
    list += formatted("{}{} of {}", list.empty() ? "" : ", ", count, part);
  }
  if (list.empty()) return list;
  return formatted("tensors that are not of the text model are left alone: {}", list);
}

}  // namespace moeflux
