// An unsupported variant of a family is refused at load by the name of its key, never run wrongly:
// the public configs with one thing changed. Long, because each family has a case or two.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/format.h"
#include "model/families/config_test_util.h"
#include "model/family.h"
#include "model/mixers/attention.h"
#include "model/public_models.h"
#include "model/quant_config.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::config_of;
using testing::expect_error;
using testing::read;
using testing::read_with;
using testing::text_of;

constexpr auto kUnsupported = ErrorCode::kUnsupported;
constexpr auto kInvalid = ErrorCode::kInvalidArgument;

// One of every family; those in kebab case are public configs, the others tiny ones.
const std::vector<std::string> kEveryFamily = {"qwen3.5-35b-a3b",
                                               "qwen3-next-80b-a3b",
                                               "qwen3-30b-a3b",
                                               "qwen2_moe",
                                               "deepseek-v3",
                                               "kimi-k2",
                                               "kimi-k2.5",
                                               "glm-4.5",
                                               "glm-4.7-flash",
                                               "minimax-m2",
                                               "mixtral-8x7b",
                                               "olmoe-1b-7b",
                                               "deepseek-v2",
                                               "gpt-oss-20b",
                                               "gemma4_text",
                                               "mimo_v2_flash",
                                               "lfm2-8b-a1b",
                                               "deepseek-v3.2",
                                               "glm-5",
                                               "glm-5.2",
                                               "minimax-m3",
                                               "hy_v3",
                                               "dots1",
                                               "solar_open",
                                               "exaone_moe",
                                               "afmoe",
                                               "qwen3_omni_moe_text",
                                               "qwen3_vl_moe_text",
                                               "laguna",
                                               "step3p5",
                                               "llama4_text",
                                               "cohere2_moe",
                                               "ernie4_5_moe",
                                               "mistral4",
                                               "kimi-linear-48b-a3b",
                                               "ling-3.0-tiny",
                                               "granite-4.0-h-small",
                                               "nemotron-3-nano-30b-a3b"};

const AttentionSpec& attention_of(const LayerSpec& layer) {
  return *mixer_as<AttentionSpec>(layer);
}

TEST(Refusals, TheConfigsThemselvesAreAccepted) {
  for (const std::string& model : kEveryFamily) {
    const auto spec = read(config_of(model));
    EXPECT_TRUE(spec.ok()) << model << ": " << spec.error().to_string();
  }
}

TEST(Refusals, OtherActivations) {
  for (const std::string& model : kEveryFamily) {
    const std::map<std::string, std::string> own = {{"gemma4_text", "hidden_activation"},
                                                    {"nemotron-3-nano-30b-a3b", "mlp_hidden_act"}};
    const std::string key = own.contains(model) ? own.at(model) : "hidden_act";
    expect_error(read_with(model, key, "gelu"), kUnsupported, {key, "gelu"});
  }
}

TEST(Refusals, OtherRopeTypesInEitherDialect) {
  for (const std::string& model : kEveryFamily) {
    for (const std::string type : {"linear", "dynamic", "longrope", "su"}) {
      const Json rope = {{"rope_type", type}, {"type", type}, {"rope_theta", 1e4}, {"factor", 2.0}};
      for (const std::string key : {"rope_parameters", "rope_scaling"}) {
        Json json = config_of(model);
        text_of(json).erase("rope_parameters");
        text_of(json).erase("rope_scaling");
        text_of(json)["rope_theta"] = 1e4;
        text_of(json)["swa_rope_theta"] = 1e4;
        text_of(json)[key] = rope;
        expect_error(read(json), kUnsupported, {key, "rope_type", type});
      }
    }
  }
}

TEST(Refusals, RopeDialectsThatContradictEachOther) {
  Json json = config_of("deepseek_v3");
  Json old = json["rope_parameters"];
  old.erase("rope_theta");
  json["rope_scaling"] = old;
  EXPECT_TRUE(read(json).ok());
  json["rope_scaling"]["factor"] = 2.0;
  expect_error(read(json), kInvalid, {"rope_scaling", "factor", "2.0", "4.0"});
}

TEST(Refusals, RopeKeysThatScaleQueriesByPosition) {
  for (const std::string& model : kEveryFamily) {
    if (model == "mistral4") continue;  // whose own key it is
    Json json = config_of(model);
    const std::string rope =
        text_of(json).contains("rope_parameters") || json.contains("rope_parameters")
            ? "rope_parameters"
            : "rope_scaling";
    Json& object = text_of(json)[rope];
    if (object.is_null()) object = {{"rope_type", "default"}};
    object["llama_4_scaling_beta"] = 0.1;
    expect_error(read(json), kUnsupported, {rope + ": llama_4_scaling_beta", "0.1"});
    object["llama_4_scaling_beta"] = 0;
    EXPECT_TRUE(read(json).ok()) << model;
  }
}

TEST(Refusals, RopeThatIsProportionalAndScaled) {
  Json json = config_of("gemma4_text");
  Json& rope = json["rope_parameters"]["full_attention"];
  ASSERT_EQ(rope["rope_type"], "proportional");
  rope["factor"] = 1.0;
  EXPECT_TRUE(read(json).ok());
  rope["factor"] = 8.0;
  expect_error(read(json), kUnsupported, {"full_attention", "factor", "8"});
}

TEST(Refusals, UnknownKeysOfRopeAreListed) {
  Json json = config_of("kimi-k2");
  json["rope_scaling"]["frobnication"] = 0.1;
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->unread_keys, (std::vector<std::string>{"rope_scaling: frobnication"}));
}

TEST(Refusals, RopeScalingMayHoldNothingBesideRopeParameters) {
  Json json = config_of("deepseek_v3");
  json["rope_scaling"] = {{"factor", nullptr}};
  EXPECT_TRUE(read(json).ok());
}

TEST(Refusals, NullRopeScalingMeansNone) {
  for (const std::string model : {"glm-4.5", "qwen3-30b-a3b", "olmoe-1b-7b"}) {
    Json json = config_of(model);
    ASSERT_TRUE(json.contains("rope_scaling") && json["rope_scaling"].is_null());
    const auto with_null = read(json);
    json.erase("rope_scaling");
    const auto without = read(json);
    ASSERT_TRUE(with_null.ok() && without.ok());
    EXPECT_EQ(attention_of(with_null->layers[0]).rope.inverse_frequencies,
              attention_of(without->layers[0]).rope.inverse_frequencies);
    EXPECT_EQ(attention_of(with_null->layers[0]).rope.attention_factor, 1.0f);
  }
}

TEST(Refusals, MissingKeysAreNamed) {
  for (const std::string& model : kEveryFamily) {
    for (const std::string key : {"hidden_size", "vocab_size", "num_hidden_layers",
                                  "num_attention_heads", "rms_norm_eps"}) {
      Json json = config_of(model);
      if (key == "num_hidden_layers" && text_of(json).contains("hybrid_override_pattern")) {
        continue;  // which has a letter for each
      }
      size_t erased = text_of(json).erase(key);
      if (key == "rms_norm_eps") {
        for (const char* own : {"norm_eps", "layer_norm_epsilon", "layer_norm_eps"}) {
          erased += text_of(json).erase(own);
        }
      }
      ASSERT_GE(erased, 1u) << model;
      json.erase(key);
      expect_error(read(json), kInvalid, {key, "missing"});
    }
  }
}

// Keys that a family does not know and that change the computation wherever they are set.
TEST(Refusals, KeysThatChangeTheComputationAnywhere) {
  for (const std::string& model : kEveryFamily) {
    for (const std::string key :
         {"embedding_multiplier", "residual_multiplier", "residual_scale", "logits_scaling",
          "attn_logit_softcapping", "router_logit_softcapping", "index_topk",
          "attention_multiplier", "query_pre_attn_scalar", "scale_depth", "no_rope_layers",
          "mlp_up_softcap"}) {
      const bool is_own = (key == "index_topk" && config_of(model).contains(key)) ||
                          (model == "llama4_text" && key == "no_rope_layers") ||
                          (model.starts_with("granite") &&
                           (key.ends_with("_multiplier") || key == "logits_scaling"));
      if (is_own) continue;
      expect_error(read_with(model, key, 8), kUnsupported, {key, "8"});
    }
    if (model != "mimo_v2_flash") {  // whose own key it is
      expect_error(read_with(model, "attention_value_scale", 0.7), kUnsupported, {"0.7"});
    }
  }
}

TEST(Refusals, KeysThatChangeTheComputationBesideTextConfig) {
  Json json = config_of("qwen3.5-35b-a3b");
  ASSERT_TRUE(json.contains("text_config"));
  json["logits_scaling"] = 8;
  expect_error(read(json), kUnsupported, {"logits_scaling", "8"});
}

TEST(Refusals, ValuesThatChangeNothingAreAcceptedWithoutAWord) {
  const std::vector<std::pair<std::string, std::vector<Json>>> neutral = {
      {"attn_logit_softcapping", {nullptr, 0, 0.0, false}},
      {"router_logit_softcapping", {nullptr, 0.0}},
      {"logits_scaling", {nullptr, 1, 1.0}},
      {"residual_scale", {nullptr, 1.0}},
      {"no_rope_layers", {nullptr, Json::array(), {1, 1, 1}}},
      {"attention_multiplier", {nullptr}},
      {"scale_depth", {nullptr}},
      {"swiglu_limits", {nullptr, Json::array(), {0.0, 0.0}}},
      {"is_causal", {true}},
      {"frobnication", {nullptr}}};
  for (const std::string& model : kEveryFamily) {
    for (const auto& [key, values] : neutral) {
      if (model == "step3p5" && key == "swiglu_limits") continue;  // whose own key it is
      if (model == "llama4_text" && key == "no_rope_layers") continue;
      for (const Json& value : values) {
        const auto spec = read_with(model, key, value);
        ASSERT_TRUE(spec.ok()) << model << ": " << spec.error().to_string();
        EXPECT_TRUE(spec->unread_keys.empty()) << model << ": " << spec->unread_keys.front();
      }
    }
  }
}

TEST(Refusals, OtherFamiliesNamesForWhatTheSpecHasAnyhowAreAccepted) {
  const std::vector<std::tuple<std::string, std::string, Json, Json>> names = {
      {"qwen3-30b-a3b", "attention_multiplier", 0.08838834764, 0.1},
      {"qwen3-30b-a3b", "query_pre_attn_scalar", 128, 64},
      {"qwen3-30b-a3b", "scoring_func", "softmax", "sigmoid"},
      {"deepseek-v3", "expert_selection_fn", "sigmoid", "softmax"},
      {"deepseek-v3", "route_scale", 2.5, 1.0},
      {"mixtral-8x7b", "norm_topk_prob", true, false},
      {"mixtral-8x7b", "moe_topk", 2, 4},
      {"olmoe-1b-7b", "qk_layernorm", true, false},
      {"minimax-m2", "mlp_hidden_act", "silu", "relu2"},
      {"glm-4.5", "topk_method", "noaux_tc", "greedy"}};
  for (const auto& [model, key, same, other] : names) {
    const auto spec = read_with(model, key, same);
    EXPECT_TRUE(spec.ok() && spec->unread_keys.empty()) << model << " " << key;
    expect_error(read_with(model, key, other), kUnsupported, {key});
  }
}

TEST(Refusals, NoConfigInTheTreeHasKeysThatNobodyKnows) {
  std::vector<std::string> texts;
  for (const PublicModel& model : public_models()) texts.emplace_back(model.config_json);
  for (const std::string folder : {"/tests/golden/models", "/models"}) {
    for (const auto& entry : std::filesystem::directory_iterator(MOEFLUX_SOURCE_DIR + folder)) {
      const std::filesystem::path config = entry.path() / "config.json";
      if (std::filesystem::exists(config)) texts.push_back(testing::read_bytes(config.string()));
    }
  }
  EXPECT_GT(texts.size(), 30u);
  for (const std::string& text : texts) {
    const auto json = parse_json(text, "config.json");
    ASSERT_TRUE(json.ok());
    const auto spec = read(*json);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_TRUE(spec->unread_keys.empty()) << spec->model_type << ": " << spec->unread_keys.front();
  }
}

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
    {"kimi-k2", "scoring_func", "softmax"},
    {"kimi-k2.5", "topk_method", "greedy"},
    {"kimi-k2.5", "moe_layer_freq", 2},
    {"kimi-linear-48b-a3b", "mla_use_nope", false},
    {"ling-3.0-tiny", "kda_safe_gate", nullptr, {}, kInvalid},
    {"ling-3.0-tiny", "kda_lower_bound", 5, {"5"}, kInvalid},
    {"ling-3.0-tiny", "gated_attention_proj_granularity_type", "element_wise", {"head_wise"}},
    {"ling-3.0-tiny", "expert_swiglu_limit_list", {0.0, 7.0}},
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
    {"gemma4_text", "hidden_size_per_layer_input", 256},
    {"gemma4_text", "num_kv_shared_layers", 2},
    {"gemma4_text", "enable_moe_block", false},
    {"gemma4_text", "use_double_wide_mlp", true},
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
    {"laguna", "attention_bias", true},
    {"laguna", "gating", "per-token", {"per-head"}},
    {"laguna", "gating_types", {"per_head", "per_element"}, {"gating_types", "per_element"}},
    {"laguna", "moe_router_logit_softcapping", 30.0},
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
  for (const std::string type : {"minimax", "deepseek_v4", "qwen4_exp", "kimi_k3"}) {
    Json json = config_of("minimax-m2");
    json["model_type"] = type;
    expect_error(read(json), kUnsupported, {"model_type", type});
  }
}

TEST(Variants, StorageOfThePublicCheckpointsIsKnown) {
  const std::vector<std::pair<std::string, std::string>> stored = {
      {"deepseek-v3", "fp8"}, {"kimi-k2.5", "compressed-tensors"}};
  for (const auto& [model, method] : stored) {
    const auto config = Config::parse(config_of(model).dump());
    ASSERT_TRUE(config.ok());
    const auto quant = QuantConfig::read(*config);
    ASSERT_TRUE(quant.ok()) << quant.error().to_string();
    EXPECT_EQ(quant->rule().method, method);
  }
}

TEST(Variants, LayersOfLfm2AttendWhereTheirListSaysSo) {
  Json json = config_of("lfm2-8b-a1b");
  json.erase("layer_types");
  expect_error(read(json), ErrorCode::kInvalidArgument, {"layer_types"});
  json["full_attn_idxs"] = {1, 23};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    EXPECT_EQ(spec->layers[i].mixer->kind(), i == 1 || i == 23 ? "attention" : "short_conv");
  }
  json["full_attn_idxs"] = {24};
  expect_error(read(json), ErrorCode::kInvalidArgument, {"full_attn_idxs", "24"});
  expect_error(read_with("lfm2-8b-a1b", "conv_bias", true), kUnsupported, {"conv_bias"});
  expect_error(read_with("lfm2-8b-a1b", "conv_L_cache", 9), ErrorCode::kInvalidArgument,
               {"conv_L_cache"});
}

// A window is honoured where the family has one.
TEST(Variants, MixtralsWindowHoldsInEveryLayer) {
  const auto spec = read_with("mixtral-8x7b", "sliding_window", 4096);
  ASSERT_TRUE(spec.ok());
  for (const LayerSpec& layer : spec->layers) EXPECT_EQ(attention_of(layer).window, 4096);
}

TEST(Variants, DenseLayersOfQwen3AreWhereTheConfigPutsThem) {
  Json json = config_of("qwen3-30b-a3b");
  json["decoder_sparse_step"] = 2;
  json["mlp_only_layers"] = {1};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok());
  for (int64_t i = 0; i < spec->num_layers(); ++i) {
    const bool dense = i % 2 == 0 || i == 1;
    EXPECT_EQ(spec->layers[static_cast<size_t>(i)].moe.num_experts, dense ? 0 : 128) << i;
  }
}

TEST(Variants, OlmoeNormalisesOnlyWhenTold) {
  EXPECT_FALSE(read(config_of("olmoe-1b-7b"))->layers[0].moe.router.normalize);
  EXPECT_TRUE(read_with("olmoe-1b-7b", "norm_topk_prob", true)->layers[0].moe.router.normalize);
}

// The publisher's spelling: lists of every layer, with entries of those that predict further
// tokens.
TEST(Variants, StepReadsItsOriginalSpelling) {
  Json json = config_of("step3p5");
  const auto expected = read(json);
  ASSERT_TRUE(expected.ok());
  for (const char* key :
       {"rope_parameters", "mlp_layer_types", "num_key_value_heads", "n_routed_experts",
        "num_experts_per_tok", "num_sliding_attention_heads"}) {
    json.erase(key);
  }
  json["num_attention_groups"] = 2;
  json["moe_num_experts"] = 8;
  json["moe_top_k"] = 2;
  json["moe_layers_enum"] = "1,2,3";
  json["attention_other_setting"] = {
      {"attention_type", "sliding_attention"}, {"num_attention_heads", 6}, {"head_dim", 32}};
  json["rope_theta"] = {2e4, 1e4, 1e4, 2e4, 1e4};
  json["partial_rotary_factors"] = {0.5, 1.0, 1.0, 0.5, 1.0};
  json["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 2.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 32.0},
                          {"original_max_position_embeddings", 64}};
  json["yarn_only_types"] = {"full_attention"};
  json["layer_types"].push_back("sliding_attention");
  json["swiglu_limits"] = {nullptr, 0.0, 0.4, 0.4, 0.0};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  for (size_t i = 0; i < 4; ++i) {
    const AttentionSpec& a = attention_of(expected->layers[i]);
    const AttentionSpec& b = attention_of(spec->layers[i]);
    EXPECT_EQ(a.window, b.window);
    EXPECT_EQ(a.num_heads, b.num_heads);
    EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
    EXPECT_EQ(a.rope.inverse_frequencies, b.rope.inverse_frequencies);
    EXPECT_EQ(expected->layers[i].moe.num_experts, spec->layers[i].moe.num_experts);
    EXPECT_EQ(expected->layers[i].moe.glu, spec->layers[i].moe.glu);
  }
  json["moe_layers_enum"] = "1;2";
  expect_error(read(json), kInvalid, {"moe_layers_enum", "1;2"});
}

TEST(Variants, ExaoneReadsItsOriginalSpelling) {
  Json json = config_of("exaone_moe");
  const auto expected = read(json);
  ASSERT_TRUE(expected.ok());
  json.erase("mlp_layer_types");
  json.erase("first_k_dense_replace");
  json["is_moe_layer"] = {false, true, true, true};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(expected->layers[i].moe.num_experts, spec->layers[i].moe.num_experts);
    EXPECT_EQ(attention_of(spec->layers[i]).rope.rotary_dim, i == 3 ? 0 : 16);
  }
  json["is_moe_layer"] = {false, true};
  expect_error(read(json), kInvalid, {"is_moe_layer", "2", "4"});
}

// The publisher's spelling: flat keys, 0 and 1 instead of names.
TEST(Variants, MimoReadsItsOriginalSpelling) {
  Json json = config_of("mimo_v2_flash");
  const auto expected = read(json);
  ASSERT_TRUE(expected.ok());
  for (const char* key : {"rope_parameters", "layer_types", "mlp_layer_types", "rms_norm_eps"}) {
    json.erase(key);
  }
  json["rope_theta"] = 5e6;
  json["swa_rope_theta"] = 1e4;
  json["partial_rotary_factor"] = 0.334;
  json["hybrid_layer_pattern"] = {0, 1, 1, 0};
  json["moe_layer_freq"] = {0, 1, 1, 1};
  json["layernorm_epsilon"] = 1e-6;
  json["n_shared_experts"] = nullptr;
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->rms_norm_eps, expected->rms_norm_eps);
  for (size_t i = 0; i < 4; ++i) {
    const AttentionSpec& a = attention_of(expected->layers[i]);
    const AttentionSpec& b = attention_of(spec->layers[i]);
    EXPECT_EQ(a.window, b.window);
    EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
    EXPECT_EQ(a.rope.inverse_frequencies, b.rope.inverse_frequencies);
    EXPECT_EQ(expected->layers[i].moe.num_experts, spec->layers[i].moe.num_experts);
  }
}

}  // namespace
}  // namespace moeflux
