// Dense families: options of their configs that the goldens do not have.
#include <gtest/gtest.h>

#include <vector>

#include "model/families/config_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::attention_of;
using testing::config_of;
using testing::expect_error;
using testing::read;
using testing::read_with;

std::vector<int64_t> windows_of(const Result<ModelSpec>& spec) {
  std::vector<int64_t> windows;
  EXPECT_TRUE(spec.ok()) << spec.error().to_string();
  if (!spec.ok()) return windows;
  for (const LayerSpec& layer : spec->layers) windows.push_back(attention_of(layer).window);
  return windows;
}

std::vector<bool> rotating_layers_of(const Result<ModelSpec>& spec) {
  std::vector<bool> rotating;
  EXPECT_TRUE(spec.ok()) << spec.error().to_string();
  if (!spec.ok()) return rotating;
  for (const LayerSpec& layer : spec->layers) {
    rotating.push_back(attention_of(layer).rope.rotary_dim > 0);
  }
  return rotating;
}

TEST(DenseVariants, BiasesAreWhereTheConfigPutsThem) {
  for (const char* model : {"llama", "qwen3", "smollm3", "granite"}) {
    const auto spec = read_with(model, "attention_bias", true);
    ASSERT_TRUE(spec.ok()) << model << spec.error().to_string();
    EXPECT_TRUE(attention_of(spec->layers[0]).qkv_bias && attention_of(spec->layers[0]).o_bias);
    EXPECT_FALSE(spec->layers[0].dense_bias);
  }
  for (const char* model : {"llama", "smollm3", "granite"}) {
    const auto spec = read_with(model, "mlp_bias", true);
    ASSERT_TRUE(spec.ok()) << model << spec.error().to_string();
    EXPECT_TRUE(spec->layers[0].dense_bias) << model;
  }
}

// Their code has no biases, whatever configs say.
TEST(DenseVariants, MistralAndExaoneHaveNoBiases) {
  for (const char* model : {"mistral", "ministral3", "exaone_moe"}) {
    const auto spec = read_with(model, "attention_bias", true);
    ASSERT_TRUE(spec.ok()) << model << spec.error().to_string();
    EXPECT_FALSE(attention_of(spec->layers[0]).qkv_bias) << model;
  }
}

TEST(DenseVariants, MistralsWindowIsThatOfTransformersWhereNoneIsMentioned) {
  Json json = config_of("mistral");
  json["sliding_window"] = nullptr;
  EXPECT_EQ(windows_of(read(json)), std::vector<int64_t>(4, 0));
  json.erase("sliding_window");
  EXPECT_EQ(windows_of(read(json)), std::vector<int64_t>(4, 4096));
}

TEST(DenseVariants, LlamasBaseIsThatOfTransformersWhereNoneIsSaid) {
  for (const auto& [model, base] : {std::pair{"llama", 1e4}, {"mistral", 1e4}, {"smollm3", 2e6}}) {
    Json json = config_of(model);
    json.erase("rope_parameters");
    const auto absent = read(json);
    json["rope_theta"] = base;
    const auto said = read(json);
    ASSERT_TRUE(absent.ok() && said.ok()) << model << absent.error().to_string();
    EXPECT_EQ(attention_of(absent->layers[0]).rope.inverse_frequencies,
              attention_of(said->layers[0]).rope.inverse_frequencies);
    json["rope_theta"] = base * 2;
    EXPECT_NE(attention_of(absent->layers[0]).rope.inverse_frequencies,
              attention_of(read(json)->layers[0]).rope.inverse_frequencies);
  }
}

TEST(DenseVariants, GraniteSwashHasItsEmbeddingsAsHeadUnlessTheConfigSaysOtherwise) {
  Json json = config_of("granite_swa");
  json.erase("tie_word_embeddings");
  EXPECT_TRUE(read(json)->tie_word_embeddings);
  json["tie_word_embeddings"] = false;
  EXPECT_FALSE(read(json)->tie_word_embeddings);
}

TEST(DenseVariants, WindowsOfQwen3BeginAtALayerOrAreListed) {
  Json json = config_of("qwen3");
  json["sliding_window"] = 7;
  json["max_window_layers"] = 3;
  EXPECT_EQ(windows_of(read(json)), std::vector<int64_t>(4, 0));
  json["use_sliding_window"] = true;
  json.erase("layer_types");
  EXPECT_EQ(windows_of(read(json)), (std::vector<int64_t>{0, 0, 0, 7}));
  json["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                         "sliding_attention"};
  EXPECT_EQ(windows_of(read(json)), (std::vector<int64_t>{7, 0, 0, 7}));
}

TEST(DenseVariants, LayersOfGemma4AreNamedWithOrWithoutZeros) {
  Json json = config_of("gemma4_text_dense");
  json["per_layer_config"] = {{"3", {{"head_dim", 24}}}};
  const auto plain = read(json);
  json["per_layer_config"] = {{"03", {{"head_dim", 24}}}};
  const auto padded = read(json);
  ASSERT_TRUE(plain.ok() && padded.ok());
  EXPECT_EQ(attention_of(plain->layers[3]).head_dim, 24);
  EXPECT_EQ(attention_of(padded->layers[3]).head_dim, 24);
}

TEST(DenseVariants, LayersOfSmolLm3RotateAsListedAndTheOthersMayHaveWindows) {
  Json json = config_of("smollm3");
  json["no_rope_layers"] = {0, 1, 0, 1};
  EXPECT_EQ(rotating_layers_of(read(json)), (std::vector<bool>{false, true, false, true}));
  json.erase("no_rope_layers");
  json["no_rope_layer_interval"] = 3;
  EXPECT_EQ(rotating_layers_of(read(json)), (std::vector<bool>{true, true, false, true}));
  json["use_sliding_window"] = true;
  json["sliding_window"] = 6;
  json.erase("layer_types");
  EXPECT_EQ(windows_of(read(json)), (std::vector<int64_t>{0, 0, 6, 0}));
  json["no_rope_layers"] = {1, 1};
  expect_error(read(json), ErrorCode::kInvalidArgument, {"no_rope_layers", "2", "4"});
}

}  // namespace
}  // namespace moeflux
