// Configs of models whose attention is left to chosen keys: the spellings that mean the same, and
// what is refused.
#include <gtest/gtest.h>

#include <string>

#include "model/families/config_test_util.h"
#include "model/family/family.h"
#include "model/mixers/latent_attention.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::attention_of;
using testing::config_of;
using testing::expect_error;
using testing::kInvalid;
using testing::kUnsupported;
using testing::read;
using testing::read_with;
using testing::text_of;

const LatentAttentionSpec& latent_of(const LayerSpec& layer) {
  return *mixer_as<LatentAttentionSpec>(layer);
}

TEST(Variants, GlmsIndicesAreWhereAnyOfItsSpellingsPutsThem) {
  Json json = config_of("glm-5.2");
  const auto named = read(json);
  ASSERT_TRUE(named.ok()) << named.error().to_string();
  int indices = 0;
  for (const LayerSpec& layer : named->layers) indices += latent_of(layer).index ? 1 : 0;
  EXPECT_EQ(indices, 21);
  json.erase("indexer_types");
  const auto counted = read(json);
  json["index_topk_pattern"] = "FFF" + std::string(75, 'S');
  const auto lettered = read(json);
  ASSERT_TRUE(counted.ok() && lettered.ok());
  for (size_t i = 0; i < named->layers.size(); ++i) {
    EXPECT_EQ(latent_of(named->layers[i]).index.has_value(),
              latent_of(counted->layers[i]).index.has_value())
        << i;
    EXPECT_EQ(latent_of(lettered->layers[i]).index.has_value(), i < 3) << i;
    EXPECT_EQ(latent_of(named->layers[i]).tokens_read, 2048);
  }
  json["index_topk_pattern"] = "S" + std::string(77, 'F');
  expect_error(read(json), kInvalid, {"first layer"});
  json["index_topk_pattern"] = "FS";
  expect_error(read(json), kInvalid, {"index_topk_pattern", "\"FS\"", "78"});
}

TEST(Variants, LayersOfGlmHaveEitherWordForTheirAttention) {
  for (const char* word : {"deepseek_sparse_attention", "indexed_attention"}) {
    EXPECT_TRUE(read_with("glm-5.2", "layer_types", Json(size_t{78}, Json(word))).ok()) << word;
  }
}

TEST(Refusals, IndicesThatCannotChoose) {
  expect_error(read_with("deepseek-v3.2", "q_lora_rank", nullptr), kUnsupported, {"q_lora_rank"});
  expect_error(read_with("deepseek-v3.2", "index_head_dim", 32), kInvalid,
               {"index_head_dim", "32", "64"});
  expect_error(read_with("deepseek-v3.2", "layer_types", Json(size_t{61}, Json("full_attention"))),
               kUnsupported, {"layer_types", "full_attention"});
}

TEST(Refusals, OtherIndicesOfMinimaxM3) {
  const auto with = [](const std::string& key, const Json& value) {
    Json json = config_of("minimax-m3");
    text_of(json)["sparse_attention_config"][key] = value;
    return read(json);
  };
  expect_error(with("sparse_score_type", "lse"), kUnsupported, {"sparse_score_type", "lse"});
  expect_error(with("sparse_init_block", 1), kUnsupported, {"sparse_init_block"});
  expect_error(with("sparse_local_block", 0), kInvalid, {"sparse_local_block", "0"});
  expect_error(with("sparse_num_index_heads", 3), kUnsupported, {"3 index heads", "4 kv heads"});
  expect_error(with("sparse_attention_freq", {1, 0}), kInvalid,
               {"sparse_attention_freq", "2", "60"});
  expect_error(read_with("minimax-m3", "attention_output_gate", true), kUnsupported,
               {"attention_output_gate"});
  expect_error(read_with("minimax-m3", "use_gemma_norm", false), kUnsupported, {"use_gemma_norm"});
}

// transformers writes flat keys and names where the publisher has an object and ones.
TEST(Variants, MinimaxM3ReadsBothSpellings) {
  Json json = config_of("minimax-m3");
  const auto expected = read(json);
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  Json& text = text_of(json);
  text.erase("sparse_attention_config");
  text.erase("moe_layer_freq");
  Json kinds = Json::array();
  Json networks = Json::array();
  for (int i = 0; i < 60; ++i) {
    kinds.push_back(i < 3 ? "full_attention" : "minimax_m3_sparse");
    networks.push_back(i < 3 ? "dense" : "sparse");
  }
  text["layer_types"] = kinds;
  text["mlp_layer_types"] = networks;
  text["index_n_heads"] = 4;
  text["index_head_dim"] = 128;
  text["index_block_size"] = 128;
  text["index_topk_blocks"] = 16;
  text["index_local_blocks"] = 1;
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  for (size_t i = 0; i < 60; ++i) {
    const AttentionSpec& a = attention_of(expected->layers[i]);
    const AttentionSpec& b = attention_of(spec->layers[i]);
    EXPECT_EQ(a.index.has_value(), i >= 3);
    EXPECT_EQ(b.index.has_value(), i >= 3);
    EXPECT_EQ(a.state({}), b.state({}));
    EXPECT_EQ(expected->layers[i].moe.num_experts, spec->layers[i].moe.num_experts);
  }
}

}  // namespace
}  // namespace moeflux
