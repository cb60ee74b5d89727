// Keys that architectures share, as the keys of a config.json.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/format.h"
#include "model/gguf/gguf_architecture.h"

namespace moeflux {
namespace {

// Values of expert_gating_func.
constexpr int64_t kSigmoid = 2;
constexpr double kFreqBaseUsual = 10000.0;
constexpr int64_t kExpertsMax = 4096;

}  // namespace

void expect_gguf_number(GgufKeys& keys, std::string_view key,
                        std::initializer_list<double> neutral) {
  if (!keys.has(key)) return keys.ignore(key);
  const double found = keys.require_number(key);
  const auto is_found = [&](double number) { return std::abs(found - number) <= 1e-5; };
  if (std::any_of(neutral.begin(), neutral.end(), is_found)) return;
  keys.fail(ErrorCode::kUnsupported, formatted("key {} is {}, only {} is supported", keys.full(key),
                                               found, *neutral.begin()));
}

void read_gguf_trunk(GgufKeys& keys, Json& config) {
  config["num_hidden_layers"] = keys.num_layers();
  config["hidden_size"] = keys.require_int("embedding_length");
  const gguf::TensorInfo* embedding = keys.tensor("token_embd.weight");
  int64_t vocab_size = keys.int_or("vocab_size", 0);
  if (vocab_size == 0 && embedding != nullptr && embedding->shape.rank() == 2) {
    vocab_size = embedding->shape[0];
  }
  config["vocab_size"] = vocab_size;
  if (keys.has("context_length")) {
    config["max_position_embeddings"] = keys.require_int("context_length");
  }
  constexpr std::string_view kRmsEps = "attention.layer_norm_rms_epsilon";
  constexpr std::string_view kMeanEps = "attention.layer_norm_epsilon";
  const bool subtracts_mean = keys.has(kMeanEps) && !keys.has(kRmsEps);
  config[subtracts_mean ? "layer_norm_eps" : "rms_norm_eps"] =
      keys.require_number(subtracts_mean ? kMeanEps : kRmsEps);
  config["tie_word_embeddings"] = keys.tensor("output.weight") == nullptr;
}

// Applies YaRN's keys as llama.cpp does (src/llama-context.cpp, since its pull request 17945): cos
// and sin are multiplied by 1 + 0.1 ln(factor), and by attn_factor whatever the type.
// yarn_attn_factor is the whole product of a config.json. llama.cpp computes its own instead, as is
// done here for 1, which some converters write whatever the config says.
Json read_gguf_rope_scaling(GgufKeys& keys) {
  const double factor = keys.number_or("rope.scaling.factor", 0.0);
  // A factor alone divides positions, as in llama.cpp's first files.
  const bool is_scaled = factor != 0.0 && factor != 1.0;
  const std::string type = keys.text_or("rope.scaling.type", is_scaled ? "linear" : "none");
  const bool is_none = type == "none" || type.empty() || type == "default";
  const bool is_yarn = type == "yarn";
  const double attention = keys.number_or("rope.scaling.attn_factor", 1.0);
  const bool is_longrope = keys.tensor("rope_factors_long.weight") != nullptr;  // which has its own
  if (!is_yarn && !is_longrope) expect_gguf_number(keys, "rope.scaling.attn_factor", {1.0});
  if (is_none) return nullptr;
  Json scaling = {{"type", type}, {"factor", is_scaled ? factor : 1.0}};
  const int64_t original = keys.int_or("rope.scaling.original_context_length", 0);
  if (original > 0) {
    scaling["original_max_position_embeddings"] = original;
  } else if (is_yarn && keys.has("context_length")) {
    scaling["original_max_position_embeddings"] = keys.require_int("context_length");
  }
  if (!is_yarn) return scaling;
  const double product = factor > 1.0 ? 1.0 + 0.1 * std::log(factor) : 1.0;
  const double stated = keys.number_or("rope.scaling.yarn_attn_factor", 1.0);
  const double whole = stated == 0.0 || stated == 1.0 ? product : stated;
  expect_gguf_number(keys, "rope.scaling.yarn_ext_factor", {1.0, -1.0});
  if (attention != 1.0 || std::abs(whole - product) > 1e-5) {
    scaling["attention_factor"] = attention * whole;
  }
  const auto turns = [&](std::string_view key, double absent) {
    const double found = keys.number_or(key, 0.0);
    return found == 0.0 ? absent : found;
  };
  scaling["beta_fast"] = turns("rope.scaling.yarn_beta_fast", 32.0);
  scaling["beta_slow"] = turns("rope.scaling.yarn_beta_slow", 1.0);
  return scaling;
}

void expect_no_gguf_rope_scaling(GgufKeys& keys) {
  const Json scaling = read_gguf_rope_scaling(keys);
  if (scaling.is_null()) return;
  keys.fail(ErrorCode::kUnsupported,
            formatted("key {} is {}, expected none", keys.full("rope.scaling.type"),
                      json_excerpt(scaling["type"])));
}

void read_gguf_attention(GgufKeys& keys, Json& config) {
  const int64_t heads = keys.require_int("attention.head_count");
  const int64_t hidden_size = keys.require_int("embedding_length");
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = keys.int_or("attention.head_count_kv", heads);
  const int64_t head_dim =
      keys.int_or("attention.key_length", hidden_size / std::max<int64_t>(heads, 1));
  keys.expect_int("attention.value_length", head_dim);
  config["head_dim"] = head_dim;
  config["rope_theta"] = keys.number_or("rope.freq_base", kFreqBaseUsual);
  const int64_t rotary = keys.int_or("rope.dimension_count", head_dim);
  config["partial_rotary_factor"] =
      static_cast<double>(rotary) / static_cast<double>(std::max<int64_t>(head_dim, 1));
  keys.ignore("rope.dimension_sections");  // of images; a text's positions are all the same
  const Json scaling = read_gguf_rope_scaling(keys);
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
}

void read_gguf_rope_factors(GgufKeys& keys, Json& config) {
  constexpr std::string_view kFactors = "rope_freqs.weight";
  if (keys.tensor(kFactors) == nullptr) return;
  config["rope_parameters"] = {{"rope_type", "factors"},
                               {"rope_theta", config["rope_theta"]},
                               {"frequency_factors", keys.read_floats(kFactors)}};
}

int64_t read_gguf_heads(GgufKeys& keys, const std::vector<int64_t>& sliding,
                        const GgufHeads& heads) {
  const std::vector<int64_t> all = keys.of_blocks(heads.key, true);
  std::optional<int64_t> found;
  const auto layers = static_cast<size_t>(keys.num_layers());
  for (size_t i = 0; i < std::min({layers, all.size(), sliding.size()}); ++i) {
    if ((sliding[i] != 0) != heads.slide) continue;
    if (found && all[i] != *found) {
      keys.fail(ErrorCode::kUnsupported,
                formatted("key {} has {} and {} for blocks {} a window", keys.full(heads.key),
                          *found, all[i], heads.slide ? "with" : "without"));
    }
    found = all[i];
  }
  return found.value_or(heads.absent);
}

void read_gguf_latent_widths(GgufKeys& keys, Json& config) {
  const bool is_split = keys.has("attention.key_length_mla");
  const int64_t rope = keys.require_int("rope.dimension_count");
  const int64_t key =
      keys.require_int(is_split ? "attention.key_length_mla" : "attention.key_length");
  if (!config.contains("num_attention_heads")) {
    config["num_attention_heads"] = keys.require_int("attention.head_count");
  }
  config["kv_lora_rank"] = keys.require_int("attention.kv_lora_rank");
  if (keys.has("attention.q_lora_rank")) {
    config["q_lora_rank"] = keys.require_int("attention.q_lora_rank");
  }
  config["qk_nope_head_dim"] = key - rope;
  config["qk_rope_head_dim"] = rope;
  config["v_head_dim"] =
      keys.require_int(is_split ? "attention.value_length_mla" : "attention.value_length");
  for (const char* follows :
       {"attention.head_count_kv", "attention.key_length", "attention.value_length"}) {
    keys.ignore(follows);  // from the others
  }
}

// yarn_log_multiplier is 0.1 * mscale_all_dim. mscale is not stored: the factor of cos and sin is
// 1, as where both are equal.
void read_gguf_latent_rope(GgufKeys& keys, Json& config) {
  config["rope_theta"] = keys.number_or("rope.freq_base", kFreqBaseUsual);
  Json scaling = read_gguf_rope_scaling(keys);
  if (scaling.is_null()) return;
  // llama.cpp multiplies the scale of scores with it as well.
  expect_gguf_number(keys, "rope.scaling.attn_factor", {1.0});
  const double all_dim = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1;
  scaling["mscale"] = all_dim;
  scaling["mscale_all_dim"] = all_dim;
  config["rope_scaling"] = scaling;
}

void read_gguf_index(GgufKeys& keys, Json& config) {
  config["index_n_heads"] = keys.require_int("attention.indexer.head_count");
  config["index_head_dim"] = keys.require_int("attention.indexer.key_length");
  config["index_topk"] = keys.require_int("attention.indexer.top_k");
  keys.ignore("attention.indexer.types");  // says the same; older files have no such key
  config["indexer_types"] = list_gguf_layers(keys, [&](size_t i) {
    // Nothing is known of files without tensors, as tests have them.
    const bool has_index = keys.tensor(formatted("blk.{}.indexer.proj.weight", i)) != nullptr ||
                           keys.model().tensors().empty();
    return has_index ? "full" : "shared";
  });
}

std::vector<GgufName> gguf_latent_names(std::vector<GgufName> own) {
  own.insert(own.end(), {{"attn_q_a", "self_attn.q_a_proj"},
                         {"attn_q_a_norm", "self_attn.q_a_layernorm"},
                         {"attn_q_b", "self_attn.q_b_proj"},
                         {"attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"},
                         {"attn_kv_a_norm", "self_attn.kv_a_layernorm"},
                         {"attn_k_b", "self_attn.embed_q"},  // each head's keys transposed already
                         {"attn_v_b", "self_attn.unembed_out"},
                         {"attn_kv_b", "self_attn.kv_b_proj", "attn_k_b.weight"},
                         {"attn_kv_b", ""},
                         {"indexer.attn_q_b", "self_attn.indexer.wq_b"},
                         {"indexer.attn_k", "self_attn.indexer.wk"},
                         {"indexer.proj", "self_attn.indexer.weights_proj"},
                         {"indexer.k_norm", "self_attn.indexer.k_norm"}});
  return own;
}

GgufScan read_gguf_scan(GgufKeys& keys) {
  GgufScan scan;
  scan.heads = keys.require_int("ssm.time_step_rank");
  scan.head_dim = keys.require_int("ssm.inner_size") / std::max<int64_t>(scan.heads, 1);
  scan.groups = keys.require_int("ssm.group_count");
  scan.state_dim = keys.require_int("ssm.state_size");
  scan.conv_taps = keys.require_int("ssm.conv_kernel");
  scan.conv_bias = keys.any_block_has("ssm_conv1d.bias");
  return scan;
}

void read_gguf_hybrid_types(GgufKeys& keys, Json& config, std::string_view recurrent,
                            std::string_view attention) {
  const std::vector<int64_t> kv_heads = keys.of_blocks("attention.head_count_kv");
  config["layer_types"] =
      list_gguf_layers(keys, [&](size_t i) { return kv_heads[i] == 0 ? recurrent : attention; });
}

std::vector<GgufName> gguf_kda_names(std::vector<GgufName> own) {
  own.insert(own.end(), {{"ssm_conv1d_q", "self_attn.q_conv1d"},
                         {"ssm_conv1d_k", "self_attn.k_conv1d"},
                         {"ssm_conv1d_v", "self_attn.v_conv1d"},
                         {"ssm_f_a", "self_attn.f_a_proj"},
                         {"ssm_f_b", "self_attn.f_b_proj"},
                         {"ssm_g_a", "self_attn.g_a_proj"},
                         {"ssm_g_b", "self_attn.g_b_proj"},
                         {"ssm_beta", "self_attn.b_proj"},
                         {"ssm_a", "self_attn.decay_rate"},
                         {"ssm_dt.bias", "self_attn.dt_bias"},
                         {"ssm_norm", "self_attn.o_norm"}});
  return own;
}

void read_gguf_gated_delta(GgufKeys& keys, Json& config) {
  const int64_t interval = std::max<int64_t>(keys.int_or("full_attention_interval", 4), 1);
  std::vector<int64_t> recurrent;
  for (int64_t i = 1; i <= keys.num_layers(); ++i) recurrent.push_back(i % interval != 0 ? 1 : 0);
  if (keys.has("attention.recurrent_layers")) {
    recurrent = keys.of_blocks("attention.recurrent_layers");
  }
  config["layer_types"] = list_gguf_layers(
      keys, [&](size_t i) { return recurrent[i] != 0 ? "linear_attention" : "full_attention"; });
  const int64_t value_heads = keys.require_int("ssm.time_step_rank");
  config["linear_num_key_heads"] = keys.require_int("ssm.group_count");
  config["linear_num_value_heads"] = value_heads;
  config["linear_key_head_dim"] = keys.require_int("ssm.state_size");
  config["linear_value_head_dim"] =
      keys.require_int("ssm.inner_size") / std::max<int64_t>(value_heads, 1);
  config["linear_conv_kernel_dim"] = keys.require_int("ssm.conv_kernel");
}

std::vector<GgufName> gguf_gated_delta_names(std::vector<GgufName> own) {
  own.insert(own.end(), {{"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                         {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                         {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                         // Layers of attention may hold q, k and v in a tensor of this name.
                         {"attn_qkv", "linear_attn.in_proj_qkv", "attn_output.weight"},
                         {"attn_gate", "linear_attn.in_proj_z"},
                         {"ssm_alpha", "linear_attn.in_proj_a"},
                         {"ssm_beta", "linear_attn.in_proj_b"},
                         {"ssm_conv1d", "linear_attn.conv1d"},
                         {"ssm_a", "linear_attn.decay_rate"},
                         {"ssm_dt.bias", "linear_attn.dt_bias"},
                         {"ssm_norm", "linear_attn.norm"},
                         {"ssm_out", "linear_attn.out_proj"}});
  return own;
}

void read_gguf_experts(GgufKeys& keys, Json& config) {
  const int64_t experts = keys.require_int("expert_count");
  if (experts > kExpertsMax) {
    keys.fail(ErrorCode::kUnsupported,
              formatted("expert_count is {}, expected at most {}", experts, kExpertsMax));
  }
  config["num_experts"] = experts;
  config["num_experts_per_tok"] = keys.require_int("expert_used_count");
  // Older files do not say the width of experts, but their tensors do.
  int64_t width = keys.int_or("expert_feed_forward_length", 0);
  for (int64_t i = 0; width == 0 && i < keys.num_layers(); ++i) {
    const gguf::TensorInfo* down = keys.tensor(formatted("blk.{}.ffn_down_exps.weight", i));
    if (down != nullptr && down->shape.rank() == 3) width = down->shape[2];
  }
  config["moe_intermediate_size"] = width;
}

double read_gguf_weights_scale(GgufKeys& keys) {
  const double scale = keys.number_or("expert_weights_scale", 1.0);
  return scale == 0.0 ? 1.0 : scale;
}

void read_gguf_noaux_tc(GgufKeys& keys, Json& config) {
  keys.expect_int("expert_gating_func", kSigmoid);
  config["scoring_func"] = "sigmoid";
  config["n_group"] = keys.int_or("expert_group_count", 1);
  config["topk_group"] = keys.int_or("expert_group_used_count", 1);
  config["norm_topk_prob"] = keys.bool_or("expert_weights_norm", false);
  config["routed_scaling_factor"] = read_gguf_weights_scale(keys);
}

void read_gguf_limits(GgufKeys& keys, std::string_view key, Json& config, std::string_view own) {
  if (!keys.has(key)) return;
  const std::vector<double> all = keys.numbers_of_blocks(key);
  config[std::string(own)] = std::vector<double>(all.begin(), all.begin() + keys.num_layers());
}

void read_gguf_common_limit(GgufKeys& keys, Json& config) {
  const double limit = keys.numbers_of_blocks("swiglu_clamp_exp").front();
  for (const std::string_view key : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) {
    if (!keys.has(key)) continue;
    for (const double own : keys.numbers_of_blocks(key)) {
      if (own == limit) continue;
      keys.fail(ErrorCode::kUnsupported,
                formatted("{} has {} and {}, expected one limit for all layers, routed and shared",
                          key, limit, own));
    }
  }
  config["swiglu_limit"] = limit;
}

void read_gguf_streams(GgufKeys& keys, Json& config) {
  config["hc_mult"] = keys.require_int("hyper_connection.count");
  config["hc_sinkhorn_iters"] = keys.require_int("hyper_connection.sinkhorn_iterations");
  config["hc_eps"] = keys.require_number("hyper_connection.epsilon");
}

std::vector<GgufName> gguf_stream_names(std::vector<GgufName> own) {
  own.insert(own.end(), {{"output_hc_fn.weight", "hc_head_fn"},
                         {"output_hc_base.weight", "hc_head_base"},
                         {"output_hc_scale.weight", "hc_head_scale"},
                         {"nextn.hc_head_fn.weight", "hc_head_fn"},
                         {"nextn.hc_head_base.weight", "hc_head_base"},
                         {"nextn.hc_head_scale.weight", "hc_head_scale"},
                         {"hc_attn_fn.weight", "hc_attn_fn"},
                         {"hc_attn_base.weight", "hc_attn_base"},
                         {"hc_attn_scale.weight", "hc_attn_scale"},
                         {"hc_ffn_fn.weight", "hc_ffn_fn"},
                         {"hc_ffn_base.weight", "hc_ffn_base"},
                         {"hc_ffn_scale.weight", "hc_ffn_scale"}});
  return own;
}

void read_gguf_layer_types(GgufKeys& keys, Json& config, const GgufPattern& usual) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  std::vector<int64_t> sliding;
  GgufPattern pattern = usual;
  if (keys.has_array(kPattern)) {
    sliding = keys.of_blocks(kPattern);
  } else if (keys.has(kPattern)) {  // 0: all slide
    pattern.interval = keys.require_int(kPattern);
    if (usual.full_at != 0) pattern.full_at = pattern.interval - 1;
  }
  config["layer_types"] = list_gguf_layers(keys, [&](size_t i) {
    const auto layer = static_cast<int64_t>(i);
    const bool follows = pattern.interval == 0 || layer % pattern.interval != pattern.full_at;
    const bool slides = sliding.empty() ? follows : sliding[i] != 0;
    return slides ? "sliding_attention" : "full_attention";
  });
}

void read_gguf_rope_by_window(GgufKeys& keys, Json& config) {
  const double theta = config["rope_theta"];
  Json full = config.value("rope_scaling", Json::object());
  full["rope_theta"] = theta;
  const double local = keys.number_or("rope.freq_base_swa", theta);
  config["rope_parameters"] = {{"full_attention", std::move(full)},
                               {"sliding_attention", {{"rope_theta", local}}}};
  for (const char* said : {"rope_theta", "rope_scaling"}) config.erase(said);
}

void read_gguf_dense_layers(GgufKeys& keys, Json& config) {
  const int64_t dense = keys.int_or("leading_dense_block_count", 0);
  config["first_k_dense_replace"] = dense;
  if (dense > 0 || keys.has("feed_forward_length")) {
    config["intermediate_size"] = keys.require_int("feed_forward_length");
  }
}

void read_gguf_dense_network(GgufKeys& keys, Json& config) {
  keys.expect_int("expert_count", 0);
  keys.expect_int("expert_used_count", 0);
  config["intermediate_size"] = keys.require_int("feed_forward_length");
  config["mlp_bias"] = keys.any_block_has("ffn_gate.bias");
}

void read_gguf_attention_biases(const GgufKeys& keys, Json& config) {
  if (config.contains("qkv_bias")) return;  // of a family with such a key
  const auto any_has = [&](const char* rest) { return keys.any_block_has(rest); };
  constexpr std::array kOfInputs = {"attn_q.bias", "attn_qkv.bias", "attn_q_a.bias",
                                    "attn_kv_a_mqa.bias"};
  const bool of_inputs = std::any_of(kOfInputs.begin(), kOfInputs.end(), any_has);
  const bool of_output = any_has("attn_output.bias");
  if (of_inputs || of_output) config["attention_bias"] = of_inputs;
  if (of_inputs != of_output) config["attention_out_bias"] = of_output;
}

}  // namespace moeflux
