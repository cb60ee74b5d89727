// Models that no family can run are refused at load by the name of their key, never run wrongly:
// the public configs with one thing changed, of every family.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "model/families/config_test_util.h"
#include "model/family/public_models.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"

namespace moeflux {
namespace {

using testing::config_of;
using testing::expect_error;
using testing::kInvalid;
using testing::kUnsupported;
using testing::read;
using testing::read_with;
using testing::text_of;

bool lists_rotating_layers(const std::string& model) {
  return model == "llama4_text" || model == "smollm3" || model.starts_with("mistral_large4");
}

TEST(Refusals, TheConfigsThemselvesAreAccepted) {
  for (const std::string& model : testing::every_family()) {
    const auto spec = read(config_of(model));
    EXPECT_TRUE(spec.ok()) << model << ": " << spec.error().to_string();
  }
}

TEST(Refusals, OtherActivations) {
  for (const std::string& model : testing::every_family()) {
    const std::map<std::string, std::string> own = {{"gemma4_text", "hidden_activation"},
                                                    {"gemma4_text_dense", "hidden_activation"},
                                                    {"gemma4_text_e", "hidden_activation"},
                                                    {"nemotron-3-nano-30b-a3b", "mlp_hidden_act"}};
    const std::string key = own.contains(model) ? own.at(model) : "hidden_act";
    expect_error(read_with(model, key, "gelu"), kUnsupported, {key, "gelu"});
  }
}

TEST(Refusals, MissingKeysAreNamed) {
  for (const std::string& model : testing::every_family()) {
    for (const std::string key : {"hidden_size", "vocab_size", "num_hidden_layers",
                                  "num_attention_heads", "rms_norm_eps"}) {
      Json json = config_of(model);
      const bool is_size = key == "hidden_size" || key == "num_hidden_layers";
      if (model == "gemma3_text" && !is_size) continue;  // which has defaults of its own
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
  for (const std::string& model : testing::every_family()) {
    Json config = config_of(model);
    for (const std::string key :
         {"embedding_multiplier", "residual_multiplier", "residual_scale", "logits_scaling",
          "attn_logit_softcapping", "router_logit_softcapping", "index_topk",
          "attention_multiplier", "query_pre_attn_scalar", "scale_depth", "no_rope_layers",
          "mlp_up_softcap"}) {
      const bool is_own = (key == "index_topk" && text_of(config).contains(key)) ||
                          (lists_rotating_layers(model) && key == "no_rope_layers") ||
                          (key == "query_pre_attn_scalar" &&
                           (model == "gemma3_text" || model.starts_with("step"))) ||
                          (model.starts_with("inkling2") && key == "mlp_up_softcap") ||
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
  for (const std::string& model : testing::every_family()) {
    for (const auto& [key, values] : neutral) {
      if (model == "step3p5" && key == "swiglu_limits") continue;  // whose own key it is
      if (lists_rotating_layers(model) && key == "no_rope_layers") continue;
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

}  // namespace
}  // namespace moeflux
