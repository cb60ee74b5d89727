// Variants of one family that its code does not compute are refused by the name of their key. A
// long list, because each family has a case or two.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/families/config_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::config_of;
using testing::expect_error;
using testing::read;
using testing::read_with;
using testing::text_of;

constexpr auto kUnsupported = ErrorCode::kUnsupported;
constexpr auto kInvalid = ErrorCode::kInvalidArgument;

struct Variant {
  const char* model;
  const char* key;
  Json value;
  std::vector<std::string> pieces = {};  // beside the key
  ErrorCode code = kUnsupported;
};

const std::vector<Variant> kVariants = {
    {"qwen3.5-35b-a3b", "attention_bias", true},
    {"qwen3.5-35b-a3b", "attn_output_gate", false},
    {"qwen3.5-35b-a3b", "mlp_only_layers", {3}, {"dense"}},
    {"qwen3.5-35b-a3b", "use_sliding_window", true},
    {"qwen3.5-35b-a3b", "norm_topk_prob", false},
    {"qwen3.5-35b-a3b", "output_gate_type", "sigmoid", {"swish"}},
    {"qwen3.5-35b-a3b", "layer_types", {"full_attention"}, {"1", "40"}, kInvalid},
    {"qwen3-next-80b-a3b", "attention_bias", true},
    {"qwen3-next-80b-a3b", "mlp_only_layers", {0, 1}, {"dense"}},
    {"qwen3-next-80b-a3b", "decoder_sparse_step", 2},
    {"qwen3-next-80b-a3b", "norm_topk_prob", false},
    {"qwen3-next-80b-a3b", "use_sliding_window", true},
    {"qwen3-30b-a3b", "attention_bias", true},
    {"qwen3-30b-a3b", "qkv_bias", true},
    {"qwen3-30b-a3b", "use_qk_norm", false},
    {"qwen3-30b-a3b", "use_sliding_window", true},
    {"qwen3-30b-a3b", "shared_expert_intermediate_size", 768},
    {"qwen3-30b-a3b", "num_local_experts", 64, {"128", "64"}, kInvalid},
    {"qwen2_moe", "use_sliding_window", true},
    {"qwen2_moe",
     "layer_types",
     {"full_attention", "sliding_attention", "full_attention", "full_attention"},
     {"sliding_attention"}},
    {"deepseek-v3", "attention_bias", true},
    {"deepseek-v3", "scoring_func", "softmax", {"sigmoid"}},
    {"deepseek-v3", "topk_method", "group_limited_greedy", {"noaux_tc"}},
    {"deepseek-v3", "moe_layer_freq", 2},
    {"deepseek-v3", "n_group", 7, {"256"}, kInvalid},
    {"deepseek-v3", "topk_group", 9, {"8"}, kInvalid},
    {"deepseek-v3", "sliding_window", 4096},
    {"ax-k1", "attention_bias", true},
    {"ax-k1", "moe_layer_freq", 2},
    {"ax-k1", "n_group", 7, {"192"}, kInvalid},
    {"ax-k2-light", "gated_norm_rank", nullptr, {"missing"}, kInvalid},
    {"ax-k2-light",
     "rope_parameters",
     {{"rope_type", "dynamic"}, {"rope_theta", 1e4}},
     {"dynamic"}},
    {"hy4-preview", "enable_ihc", false},
    {"hy4-preview", "gated_mla", false},
    {"hy4-preview", "gating_type", "headwise", {"elementwise"}},
    {"hy4-preview", "learnable_sink", false},
    {"hy4-preview", "hc_mult", 9, {"9"}, kInvalid},
    {"mistral-large-4", "q_lora_rank", 512, {"512"}},
    {"mistral-large-4", "norm_topk_prob", false},
    {"mistral_large4_text", "kv_source_layers", {0, 0, 2, 3, 3}, {"layer 4"}, kInvalid},
    {"mistral_large4_text", "kv_source_layers", {0, 0, 2, 1, 2}, {"layer 3"}, kInvalid},
    {"mistral_large4_text", "no_rope_layers", {1, 1}, {"2", "5"}, kInvalid},
    {"dots3-note-prev", "attention_gate_type", "elementwise", {"headwise"}},
    {"dots3-note-prev", "apply_mla_qkv_lora_rescale", false},
    {"dots3-note-prev", "swa_head_dim", 128, {"128", "192"}, kInvalid},
    {"dots3-note-prev", "swa_num_key_value_heads", 8},
    {"dots3-note-prev", "mlp_bias", true},
    {"dots3_note_text", "layer_types", {"chunked", "", "", ""}, {"chunked"}},
    {"dots3_note_text", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"sarvam-105b", "scoring_func", "softmax"},
    {"sarvam-105b", "moe_shared_expert_intermediate_size", 1024},
    {"kimi-k2", "scoring_func", "softmax"},
    {"kimi-k2.5", "topk_method", "greedy"},
    {"kimi-k2.5", "moe_layer_freq", 2},
    {"kimi-linear-48b-a3b", "mla_use_nope", false},
    {"kimi-k3", "activation_situ_linear_beta", nullptr, {}, kInvalid},
    {"ling-3.0-tiny", "kda_safe_gate", nullptr, {}, kInvalid},
    {"ling-3.0-tiny", "kda_lower_bound", 5, {"5"}, kInvalid},
    {"ling-3.0-tiny", "gated_attention_proj_granularity_type", "element_wise", {"head_wise"}},
    {"ling-3.0-tiny", "expert_swiglu_limit_list", {0.0, 7.0}, {"2", "24"}, kInvalid},
    {"granite-4.0-h-small", "layer_types", {"attention"}, {"1", "40"}, kInvalid},
    {"granite-4.0-h-small", "time_step_limit", {0.001, 100.0}, {"0.001"}},
    {"granite-4.0-h-small", "num_local_experts", 0, {"0"}, kInvalid},
    {"nemotron-3-nano-30b-a3b", "hybrid_override_pattern", "MEX", {"X"}},
    {"nemotron-3-nano-30b-a3b", "num_hidden_layers", 51, {"52"}, kInvalid},
    {"nemotron-3-nano-30b-a3b", "block_configs", {1, 2}},
    {"deepseek-v2", "scoring_func", "sigmoid", {"softmax"}},
    {"deepseek-v2", "topk_method", "noaux_tc", {"greedy"}},
    {"deepseek-v2", "norm_topk_prob", true},
    {"deepseek-v2", "mlp_bias", true},
    {"deepseek-v2", "attention_bias", true},
    {"deepseek-v2", "n_group", 7, {"160"}, kInvalid},
    {"deepseek-v2", "moe_layer_freq", 2},
    {"glm-4.5", "scoring_func", "softmax"},
    {"glm-4.5", "sliding_window", 1024},
    {"glm-4.5", "moe_layer_freq", 2},
    {"glm-4.7-flash", "attention_bias", true},
    {"glm-4.7-flash", "mlp_layer_types", {"dense"}, {"1", "47"}, kInvalid},
    {"minimax-m2", "scoring_func", "softmax"},
    {"minimax-m2", "qk_norm_type", "per_head", {"per_layer"}},
    {"minimax-m2", "attn_type_list", {1, 0, 1}, {"0"}},
    {"minimax-m2", "use_routing_bias", false},
    {"minimax-m2", "shared_intermediate_size", 1536},
    {"minimax-m2", "layernorm_mlp_beta", 3.5},
    {"minimax-m2", "sliding_window", 128},
    {"mixtral-8x7b", "attention_bias", true},
    {"olmoe-1b-7b", "attention_bias", true},
    {"olmoe-1b-7b", "clip_qkv", 8.0},
    {"olmoe-1b-7b", "sliding_window", 512},
    {"gpt-oss-20b", "layer_types", {"full_attention"}, {"1", "24"}, kInvalid},
    {"gpt-oss-20b", "layer_types", nullptr, {"missing"}, kInvalid},
    {"gpt-oss-20b", "sliding_window", nullptr, {"missing"}, kInvalid},
    {"gpt-oss-20b", "experts_per_token", 2, {"4"}, kInvalid},
    {"gemma4_text_e", "vocab_size_per_layer_input", 512},
    {"gemma4_text_e", "num_kv_shared_layers", 4, {"4", "layer 2"}, kInvalid},
    {"gemma3_text", "use_bidirectional_attention", true},
    {"gemma3_text", "attn_logit_softcapping", 50.0},
    {"granite_swa", "layer_rope_theta", {1e4, 1e4}, {"2", "4"}, kInvalid},
    {"granite_swa", "layer_rope_theta", {1e4, "none", 0, 0}, {"none"}, kInvalid},
    {"muse_glimmer_text", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"olmo3", "layer_types", {"chunked_attention", "", "", ""}, {"chunked_attention"}},
    {"phi3", "attention_bias", true},
    {"inkling_text", "q_bias", true},
    {"inkling_text", "o_bias", true},
    {"inkling_text", "use_sconv", false},
    {"inkling_text", "use_embed_norm", false},
    {"inkling_text", "norm_after_topk", false},
    {"inkling_text", "shared_expert_sink", false},
    {"inkling_text", "gate_activation", "softmax", {"sigmoid"}},
    {"inkling_text", "tie_word_embeddings", true},
    {"inkling_text", "unpadded_vocab_size", 300, {"300", "256"}, kInvalid},
    {"inkling_text", "num_key_value_heads", 3, {"4", "3"}, kInvalid},
    {"inkling_text", "layer_types", {"hybrid"}, {"1", "4"}, kInvalid},
    {"inkling_text", "layer_types", {"hybrid", "full_attention", "", ""}, {"full_attention"}},
    {"inkling_text", "sconv_kernel_size", 9, {"9"}, kInvalid},
    {"qwen3", "use_qk_norm", false},
    {"mellum", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"mellum", "use_qk_norm", false},
    {"sarvam_moe", "use_bias", true},
    {"sarvam_moe", "score_function", "softmax"},
    {"kolibri1", "attention_bias", true},
    {"muse_spark_text", "num_shared_experts", 1},
    {"lara_mini", "layer_types", {"chunked_attention", "", "", "", ""}, {"chunked_attention"}},
    {"lara_mini", "layer_types", {"full_attention"}, {"1", "5"}, kInvalid},
    {"beam", "scoring_func", "softmax"},
    {"gemma4_text", "use_bidirectional_attention", "all"},
    {"gemma4_text", "attention_bias", true},
    {"gemma4_text", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"mimo_v2_flash", "attention_bias", true},
    {"mimo_v2_flash", "add_full_attention_sink_bias", true},
    {"mimo_v2_flash", "n_shared_experts", 1},
    {"mimo_v2_flash", "scoring_func", "softmax"},
    {"mimo_v2_flash", "mlp_layer_types", {"dense"}, {"1", "4"}, kInvalid},
    {"hy_v3", "qk_norm", false},
    {"hy_v3", "moe_router_use_sigmoid", false},
    {"hy_v3", "route_norm", false},
    {"hy_v3", "attention_bias", true},
    {"hy_v3", "expert_hidden_dim", 128},
    {"hy_v3", "mlp_layer_types", {"dense"}, {"1", "4"}, kInvalid},
    {"dots1", "attention_bias", true},
    {"dots1", "use_qk_norm", false},
    {"dots1", "layer_types", {"full_attention", "sliding_attention"}, {"sliding_attention"}},
    {"dots1", "sliding_window", 4096},
    {"solar_open", "attention_bias", true},
    {"solar_open", "use_qk_norm", true},
    {"solar_open", "scoring_func", "softmax"},
    {"exaone_moe", "attention_bias", true},
    {"exaone_moe", "scoring_func", "softmax"},
    {"exaone_moe", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"afmoe", "attention_bias", true},
    {"afmoe", "score_func", "softmax"},
    {"afmoe", "num_limited_groups", 2},
    {"afmoe", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"ernie4_5_moe", "use_bias", true},
    {"ernie4_5_moe", "moe_gate_act", "sigmoid"},
    {"ernie4_5_moe", "moe_use_aux_free", false},
    {"ernie4_5_moe", "sliding_window", 4096},
    {"mistral4", "attention_bias", true},
    {"mistral4", "n_group", 2},
    {"deepseek-v4-flash", "attention_bias", true},
    {"deepseek-v4-flash", "num_key_value_heads", 2},
    {"deepseek-v4-flash", "scoring_func", "sigmoid"},
    {"deepseek-v4-flash", "topk_method", "greedy"},
    {"deepseek-v4-flash", "o_groups", 7, {"num_attention_heads", "o_groups"}, kInvalid},
    {"deepseek-v4-flash", "compress_ratios", {4, 4}, {"2 layers", "43"}, kInvalid},
    {"deepseek-v4-flash", "num_hash_layers", -1, {"num_hash_layers", "-1"}, kInvalid},
    {"deepseek-v4-flash", "hc_mult", 6, {"hc_mult", "6"}, kInvalid},
    {"deepseek-v4-flash", "index_head_dim", 32, {"index_head_dim", "32"}, kInvalid},
    {"deepseek_v4", "compress_rates", {{"heavily_compressed_attention", 5}}, {"5 tokens"}},
    {"deepseek_v4", "layer_types", {"a", "b", "c", "d"}, {"layer_types", "\"a\""}},
    {"glm5_next_text", "attention_bias", true},
    {"glm5_next_text", "qk_rope_head_dim", 16},
    {"glm5_next_text", "index_kpool", 3},
    {"glm5_next_text", "index_kpool", 1, {"index_kpool", "1"}, kInvalid},
    {"glm5_next_text", "index_kpool_compress", false},
    {"glm5_next_text", "index_kpool_always_select_tail", false},
    {"glm5_next_text",
     "indexer_types",
     {"full", "shared", "full", "full"},
     {"indexer_types", "no index"},
     kInvalid},
    {"glm5_next_text", "q_lora_rank", 0},
    {"glm5_next_text", "hc_mult", 1, {"hc_mult", "1"}, kInvalid},
    {"glm5_next_text", "hc_sinkhorn_iters", 0, {"hc_sinkhorn_iters", "0"}, kInvalid},
    {"glm5_next_text", "linear_lower_bound", 0.0, {"linear_lower_bound"}, kInvalid},
    {"qwen3.8-flash-next", "attention_bias", true},
    {"qwen3.8-flash-next", "attn_output_gate", false},
    {"qwen3.8-flash-next", "output_gate_type", "tanh", {"sigmoid"}},
    {"qwen3.8-flash-next", "norm_topk_prob", false},
    {"qwen3.8-flash-next", "hc_count", 1, {"1"}, kInvalid},
    {"qwen3.8-flash-next", "hc_lowrank", 0, {"0"}, kInvalid},
    {"qwen3.8-flash-next", "indexer_compress_ratio", 3, {"3", "2048"}},
    {"qwen3.8-flash-next", "indexer_kv_heads", 2},
    {"qwen3.8-flash-next", "indexer_head_dim", 32, {"32", "64"}, kInvalid},
    {"qwen3.8-flash-next", "layer_types", {"full_attention"}, {"1", "48"}, kInvalid},
    {"qwen3.8-flash-next", "ple_layer_ids", Json::array()},
    {"qwen3.8-flash-next", "ple_layer_ids", {0}, {"0"}, kInvalid},
    {"qwen3.8-flash-next", "ple_layer_ids", {2, 2}, {"2"}, kInvalid},
    {"qwen3.8-flash-next", "ple_layer_ids", {1, 2, 3, 4, 5, 6, 7, 8, 9}, {"9"}},
    {"qwen3.8-flash-next", "ple_embed_dim", 2561, {"16"}, kInvalid},
    {"qwen3.8-flash-next", "ple_conv_kernel_size", 7, {"19"}},
    {"qwen3.8-flash-next", "eos_token_id", nullptr, {}, kInvalid},
    {"qwen3.8-flash-next", "eos_token_id", 248320, {"248320"}, kInvalid},
    {"laguna", "attention_bias", true},
    {"laguna", "gating", "per-token", {"per-head"}},
    {"laguna", "gating_types", {"per_head", "per_element"}, {"gating_types", "per_element"}},
    {"laguna", "moe_router_logit_softcapping", -1.0, {"-1"}, kInvalid},
    {"laguna", "moe_apply_router_weight_on_input", true},
    {"laguna", "moe_router_score_func", "sqrtsoftplus"},
    {"laguna", "num_attention_heads_per_layer", {4, 6}, {"2", "4"}, kInvalid},
    {"laguna", "num_attention_heads_per_layer", {4, 5, 6, 4}, {"5"}, kInvalid},
    {"step3p5", "attention_bias", true},
    {"step3p5", "zero_centered", false},
    {"step3p5", "use_head_wise_attn_gate", false},
    {"step3p5", "moe_router_activation", "softmax"},
    {"step3p5", "swiglu_limits", {7.0}, {"1", "4"}, kInvalid},
    {"step3p5", "swiglu_limits", {0.0, 0.0, -1.0, 0.0}, {"-1.0"}, kInvalid},
    {"step3p5", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"llama4_text", "attention_bias", true},
    {"llama4_text", "num_experts_per_tok", 2, {"2"}},
    {"llama4_text", "no_rope_layers", {1, 0}, {"2", "4"}, kInvalid},
    {"cohere2_moe", "attention_bias", true},
    {"cohere2_moe", "use_qk_norm", true},
    {"cohere2_moe", "expert_selection_fn", "tanh"},
    {"cohere2_moe", "shared_expert_combination_strategy", "max", {"sum", "average"}},
    {"cohere2_moe", "layer_types", {"full_attention"}, {"1", "4"}, kInvalid},
    {"qwen3_vl_moe_text", "attention_bias", true},
    {"qwen3_omni_moe_text", "use_sliding_window", true},
};

TEST(Refusals, VariantsOfEachFamily) {
  for (const Variant& variant : kVariants) {
    SCOPED_TRACE(formatted("{} {}", variant.model, variant.key));
    const auto spec = read_with(variant.model, variant.key, variant.value);
    expect_error(spec, variant.code, {variant.key});
    for (const std::string& piece : variant.pieces) expect_error(spec, variant.code, {piece});
  }
}

TEST(Refusals, KeysWhoseDefaultFamiliesDisagreeAboutAreRequired) {
  const std::vector<std::pair<std::string, std::string>> required = {
      {"deepseek-v3", "routed_scaling_factor"},
      {"deepseek-v3", "n_group"},
      {"kimi-k2", "topk_group"},
      {"deepseek-v3", "moe_intermediate_size"},
      {"gpt-oss-20b", "head_dim"},
      {"minimax-m2", "head_dim"},
      {"mixtral-8x7b", "rope_theta"},
      {"qwen3-30b-a3b", "moe_intermediate_size"},
      {"mimo_v2_flash", "attention_value_scale"}};
  for (const auto& [model, key] : required) {
    Json json = config_of(model);
    ASSERT_EQ(text_of(json).erase(key), 1u) << key;
    expect_error(read(json), kInvalid, {key, "missing"});
  }
}

TEST(Refusals, SimilarModelTypes) {
  for (const std::string type : {"minimax", "deepseek_v41"}) {
    Json json = config_of("minimax-m2");
    json["model_type"] = type;
    expect_error(read(json), kUnsupported, {"model_type", type});
  }
}

}  // namespace
}  // namespace moeflux
