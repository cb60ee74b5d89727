#include <gtest/gtest.h>

#include "model/families/config_test_util.h"
#include "model/family/family.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::read;

Json flat() { return testing::make_tiny_model({}).config; }

Json nested() {
  Json json;
  json["model_type"] = "qwen3_5_moe";
  json["text_config"] = flat();
  json["vision_config"] = {{"depth", 27}};
  return json;
}

/// The flat config with one key set to another value.
Result<ModelSpec> read_with(const std::string& key, const Json& value) {
  Json json = flat();
  json[key] = value;
  return read(json);
}

TEST(Qwen35MoeSpec, FlatAndNestedConfigsMeanTheSame) {
  for (const Json& json : {flat(), nested()}) {
    const auto spec = read(json);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_EQ(spec->hidden_size, 32);
    EXPECT_EQ(spec->vocab_size, 64);
    EXPECT_EQ(spec->max_position_embeddings, 1024);
    ASSERT_EQ(spec->num_layers(), 2);
    EXPECT_EQ(spec->layers[0].mixer->kind(), "gated_delta");
    EXPECT_EQ(spec->layers[1].mixer->kind(), "attention");
    EXPECT_EQ(spec->layers[1].moe.num_experts, 4);
    EXPECT_EQ(spec->layers[1].moe.experts_per_token, 2);
    EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  }
}

TEST(Qwen35MoeSpec, LayerTypesFollowFromTheIntervalWhenAbsent) {
  Json json = flat();
  json.erase("layer_types");
  json["num_hidden_layers"] = 9;
  const auto pattern = [&] {
    const auto spec = read(json);
    EXPECT_TRUE(spec.ok());
    std::string letters;
    for (const LayerSpec& layer : spec->layers) {
      letters += layer.mixer->kind() == "attention" ? 'a' : 'd';
    }
    return letters;
  };
  EXPECT_EQ(pattern(), "dddadddad");
  json["full_attention_interval"] = 3;
  EXPECT_EQ(pattern(), "ddaddadda");
}

TEST(Qwen35MoeSpec, KeysNobodyKnowsAreReported) {
  const auto spec = read_with("frobnication_rate", 3);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->unread_keys, (std::vector<std::string>{"frobnication_rate"}));
}

TEST(Qwen35MoeSpec, MissingKeysAreNamed) {
  for (const char* key :
       {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "num_experts",
        "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    Json json = flat();
    json.erase(key);
    expect_error(read(json), ErrorCode::kInvalidArgument, {"config.json", key, "missing"});
  }
  Json json = flat();
  json.erase("rope_parameters");
  expect_error(read(json), ErrorCode::kInvalidArgument, {"rope_theta"});
}

TEST(Qwen35MoeSpec, ContradictionsAreNamedWithBothNumbers) {
  const auto invalid = ErrorCode::kInvalidArgument;
  expect_error(read_with("num_hidden_layers", 3), invalid,
               {"layer_types has 2", "num_hidden_layers is 3"});
  expect_error(read_with("num_key_value_heads", 4), invalid,
               {"num_attention_heads 2", "num_key_value_heads 4"});
  expect_error(read_with("linear_num_key_heads", 3), invalid,
               {"linear_num_value_heads 2", "linear_num_key_heads 3"});
  expect_error(read_with("num_experts_per_tok", 5), invalid,
               {"num_experts_per_tok 5", "num_experts 4"});
  Json json = flat();
  Json& rope = json["rope_parameters"];
  rope["partial_rotary_factor"] = 0.3125;
  rope["rope_type"] = "yarn";
  rope["factor"] = 2.0;
  rope["original_max_position_embeddings"] = 64;
  expect_error(read(json), invalid, {"partial_rotary_factor", "16 dimensions", "odd"});
}

TEST(Qwen35MoeSpec, UnsupportedVariantsAreRefusedByName) {
  const auto unsupported = ErrorCode::kUnsupported;
  expect_error(read_with("hidden_act", "gelu"), unsupported, {"hidden_act", "gelu", "silu"});
  expect_error(read_with("attn_output_gate", false), unsupported, {"attn_output_gate", "false"});
  expect_error(read_with("layer_types", {"linear_attention", "sliding_attention"}), unsupported,
               {"layer_types", "sliding_attention", "full_attention", "linear_attention"});
  Json json = flat();
  json["rope_parameters"]["rope_type"] = "longrope";
  expect_error(read(json), unsupported, {"rope_parameters", "rope_type", "longrope"});
}

TEST(Qwen35MoeSpec, AbsurdSizesAreRefusedByRange) {
  for (const char* key : {"hidden_size", "vocab_size", "num_hidden_layers", "head_dim",
                          "num_experts", "moe_intermediate_size", "linear_conv_kernel_dim"}) {
    for (const int64_t value : {int64_t{0}, int64_t{-1}, int64_t{1} << 40, INT64_MAX}) {
      expect_error(read_with(key, value), ErrorCode::kInvalidArgument,
                   {std::string(key) + " is " + std::to_string(value)});
    }
  }
}

}  // namespace
}  // namespace moeflux
