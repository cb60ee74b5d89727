// Keys that config.json leaves out mean what transformers' class of the model has.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/format.h"
#include "model/families/config_test_util.h"
#include "model/mixers/latent_attention.h"

namespace moeflux {
namespace {

using testing::attention_of;
using testing::config_of;
using testing::read;

/// Everything that a silent key may change.
std::string summary_of(const Result<ModelSpec>& spec) {
  if (!spec.ok()) return spec.error().to_string();
  std::string text = formatted("tied {}", spec->tie_word_embeddings);
  for (const LayerSpec& layer : spec->layers) {
    const auto* attention = mixer_as<AttentionSpec>(layer);
    text += formatted("; {} experts, {} shared, {} dense, scale {}, normalised {}, window {}",
                      layer.moe.num_experts, layer.moe.shared_intermediate_size,
                      layer.dense_intermediate_size, layer.moe.router.scale,
                      layer.moe.router.normalize, attention == nullptr ? 0 : attention->window);
  }
  return text;
}

TEST(ClassDefaults, SilentKeysMeanWhatTransformersClassHas) {
  struct Silent {
    const char* model;
    const char* key;
    Json usual;
  };
  const std::vector<Silent> silent = {{"afmoe", "num_dense_layers", 1},
                                      {"afmoe", "num_shared_experts", 2},
                                      {"axk1", "first_k_dense_replace", 1},
                                      {"bailing_hybrid", "first_k_dense_replace", 2},
                                      {"deepseek_v2", "n_shared_experts", 2},
                                      {"deepseek_v3", "first_k_dense_replace", 3},
                                      {"deepseek_v3", "n_shared_experts", 1},
                                      {"dots1", "n_shared_experts", 0},
                                      {"dots1", "norm_topk_prob", false},
                                      {"ernie4_5_moe", "moe_num_shared_experts", 2},
                                      {"ernie4_5_moe", "tie_word_embeddings", true},
                                      {"exaone_moe", "first_k_dense_replace", 1},
                                      {"glm4_moe", "first_k_dense_replace", 1},
                                      {"glm4_moe_lite", "first_k_dense_replace", 1},
                                      {"glm5_next_text", "first_k_dense_replace", 3},
                                      {"hy_v3", "first_k_dense_replace", 1},
                                      {"kimi_linear", "first_k_dense_replace", 1},
                                      {"laguna", "sliding_window", 512},
                                      {"llama4_text", "attention_chunk_size", 8192},
                                      {"mimo_v2_flash", "first_k_dense_replace", 1},
                                      {"minimax_m3_vl_text", "routed_scaling_factor", 2.0},
                                      {"muse_glimmer_text", "sliding_window", 2048},
                                      {"sarvam_moe", "first_k_dense_replace", 1},
                                      {"solar_open", "n_shared_experts", 1},
                                      {"step3p5", "first_k_dense_replace", 3}};
  for (const auto& [model, key, usual] : silent) {
    Json json = config_of(model);
    if (std::string(key) == "first_k_dense_replace") json.erase("mlp_layer_types");
    json["intermediate_size"] = json.value("intermediate_size", 48);
    json[key] = usual;
    const std::string said = summary_of(read(json));
    json.erase(key);
    EXPECT_EQ(summary_of(read(json)), said) << model << ", " << key;
    EXPECT_TRUE(said.starts_with("tied")) << said;
  }
}

std::vector<float> frequencies_of(const Json& config) {
  const auto spec = read(config);
  EXPECT_TRUE(spec.ok()) << spec.error().to_string();
  if (!spec.ok()) return {};
  const auto* latent = mixer_as<LatentAttentionSpec>(spec->layers[0]);
  return (latent == nullptr ? attention_of(spec->layers[0]).rope : latent->rope)
      .inverse_frequencies;
}

// Whatever base stands beside them.
TEST(ClassDefaults, PositionsOfAClassStandInForMissingOnes) {
  Json spark = config_of("muse_spark_text");
  Json large = config_of("mistral_large4_text");
  for (Json* config : {&spark, &large}) (*config)["rope_parameters"] = nullptr;
  const std::vector<float> usual_spark = frequencies_of(spark);
  const std::vector<float> usual_large = frequencies_of(large);
  for (Json* config : {&spark, &large}) (*config)["rope_theta"] = 777.0;
  EXPECT_EQ(frequencies_of(spark), usual_spark);
  EXPECT_EQ(frequencies_of(large), usual_large);
  spark["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  EXPECT_EQ(frequencies_of(spark), usual_spark);
  large["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  EXPECT_NE(frequencies_of(large), usual_large);  // which YaRN extends 2048 times
}

TEST(ClassDefaults, SilentConfigsOfGemma4MeanWhatTransformersClassHas) {
  Json json = config_of("gemma4_text_dense");
  json["global_head_dim"] = 512;
  const auto said = read(json);
  for (const char* key : {"rope_parameters", "global_head_dim"}) ASSERT_EQ(json.erase(key), 1u);
  const auto silent = read(json);
  ASSERT_TRUE(said.ok() && silent.ok());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(attention_of(silent->layers[i]).head_dim, i < 3 ? 32 : 512);
    EXPECT_EQ(attention_of(silent->layers[i]).rope.inverse_frequencies,
              attention_of(said->layers[i]).rope.inverse_frequencies);
  }
}

}  // namespace
}  // namespace moeflux
