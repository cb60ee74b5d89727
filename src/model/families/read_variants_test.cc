// Variants of a family that are read: spellings of its publisher, and keys that change its layers.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/config/config.h"
#include "model/config/quant_config.h"
#include "model/families/config_test_util.h"
#include "model/mixers/compressed_attention.h"
#include "model/mixers/convolved_attention.h"
#include "model/mixers/gated_delta.h"
#include "model/mixers/mamba2.h"
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

TEST(Variants, StorageOfThePublicCheckpointsIsKnown) {
  const std::vector<std::pair<std::string, std::string>> stored = {
      {"deepseek-v3", "fp8"},
      {"deepseek-v4-flash", "fp8"},
      {"deepseek-v4-pro", "fp8"},
      {"deepseek-v4.1-flash", "fp8"},
      {"kimi-k2.5", "compressed-tensors"}};
  for (const auto& [model, method] : stored) {
    const auto config = Config::parse(config_of(model).dump());
    ASSERT_TRUE(config.ok());
    const auto quant = QuantConfig::read(*config);
    ASSERT_TRUE(quant.ok()) << quant.error().to_string();
    EXPECT_EQ(quant->rule().method, method);
  }
}

TEST(Variants, LayersOfQwen4WithAnIndexHaveThreeNames) {
  Json json = config_of("qwen4_exp_text");
  const auto names = json["layer_types"];
  for (const char* name : {"full_attention", "qwen_sparse_attention", "indexed_attention"}) {
    json["layer_types"] = names;
    for (Json& type : json["layer_types"]) {
      if (type != "linear_attention") type = name;
    }
    const auto spec = read(json);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_TRUE(attention_of(spec->layers.back()).index.has_value()) << name;
  }
}

TEST(Variants, HeadsOfGraniteHybridsShareTheInnerWidthUnlessTheirSizeIsSaid) {
  Json json = config_of("granite-4.0-h-tiny");
  const auto size_of = [&json] {
    return mixer_as<Mamba2Spec>(read(json)->layers.front())->scan.head_dim;
  };
  EXPECT_EQ(size_of(), 64);
  json["mamba_d_head"] = "auto";
  EXPECT_EQ(size_of(), 2 * 1536 / 48);
  json["mamba_n_heads"] = 96;
  EXPECT_EQ(size_of(), 32);
  json.erase("mamba_d_head");
  json["mamba_expand"] = 3;
  EXPECT_EQ(size_of(), 48);
  json["mamba_n_heads"] = 100;
  expect_error(read(json), kInvalid, {"mamba_n_heads", "100", "4608"});
}

TEST(Variants, SparseLayersOfGlm53HaveThreeNames) {
  Json json = config_of("glm5_next_text");
  const auto expected = read(json);
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  for (const char* name : {"deepseek_sparse_attention", "full_attention", "indexed_attention"}) {
    Json types = Json::array();
    for (const LayerSpec& layer : expected->layers) {
      const bool linear = layer.mixer->config_value("layer_type") == "linear_attention";
      types.push_back(linear ? "linear_attention" : name);
    }
    json["layer_types"] = types;
    const auto spec = read(json);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    ASSERT_EQ(spec->layers.size(), expected->layers.size());
    for (size_t i = 0; i < spec->layers.size(); ++i) {
      EXPECT_EQ(spec->layers[i].mixer->config_value("layer_type"),
                expected->layers[i].mixer->config_value("layer_type"))
          << name << ", layer " << i;
    }
  }
}

Config wrapped(const std::string& outer, const std::string& inner, const std::string& family) {
  Json text = config_of(family);
  text["model_type"] = inner;
  const Json json = {{"model_type", outer},
                     {"text_config", std::move(text)},
                     {"vision_config", {{"hidden_size", 8}}}};
  auto config = Config::parse(json.dump());
  EXPECT_TRUE(config.ok());
  return std::move(*config);
}

TEST(Variants, TextModelsWithANameOfTheirWrapperAreTheFamilys) {
  const std::vector<std::pair<std::string, std::string>> wrappers = {
      {"glm4v_moe", "glm4_moe"},      {"granite4_vision", "granite"},
      {"granite_docling", "granite"}, {"gemma4_unified", "gemma4_text_dense"},
      {"qwen2_vl", "qwen2"},          {"qwen2_5_vl", "qwen2"},
      {"qwen3_vl", "qwen3"}};
  for (const auto& [outer, golden] : wrappers) {
    Config config = wrapped(outer, outer + "_text", golden);
    const auto family = find_family(config);
    ASSERT_TRUE(family.ok()) << family.error().to_string();
    const auto spec = (*family)->read_spec(config);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    const auto plain = read(config_of(golden));
    ASSERT_TRUE(plain.ok()) << plain.error().to_string();
    EXPECT_EQ(spec->model_type, plain->model_type) << outer;
    EXPECT_EQ(spec->num_layers(), plain->num_layers()) << outer;
  }
}

// A flat config of a model that sees, whose three positions of an image are the text's one.
TEST(Variants, Qwen2OfAVisionModelMayBeFlat) {
  Json json = config_of("qwen2");
  json.erase("rope_parameters");
  json["rope_theta"] = 1000000.0;
  json["model_type"] = "qwen2_5_vl";
  json["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};
  auto config = Config::parse(json.dump());
  ASSERT_TRUE(config.ok());
  const auto family = find_family(*config);
  ASSERT_TRUE(family.ok()) << family.error().to_string();
  const auto spec = (*family)->read_spec(*config);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(attention_of(spec->layers[0]).rope.inverse_frequencies,
            attention_of(read(config_of("qwen2"))->layers[0]).rope.inverse_frequencies);
}

// transformers 5 asks the wrapper whether the head is the embedding, 4 asked the text model.
TEST(Variants, AWrapperTiesTheHeadOfItsText) {
  for (const bool inside : {false, true}) {
    for (const bool outside : {false, true}) {
      Json json = {{"model_type", "llava"}, {"text_config", config_of("llama")}};
      json["text_config"]["tie_word_embeddings"] = inside;
      json["tie_word_embeddings"] = outside;
      const auto spec = read(json);
      ASSERT_TRUE(spec.ok()) << spec.error().to_string();
      EXPECT_EQ(spec->tie_word_embeddings, inside || outside);
    }
  }
}

// A silent config means what its class has; windows have positions of their own.
TEST(Variants, LayersOfZayaMayHaveAWindow) {
  Json json = config_of("zaya");
  for (const char* key : {"rope_parameters", "layer_types", "cca_time0", "tie_word_embeddings"}) {
    ASSERT_EQ(json.erase(key), 1u) << key;
  }
  json["layer_types"] = {"hybrid", "hybrid_sliding", "hybrid", "hybrid"};
  expect_error(read(json), kInvalid, {"hybrid_sliding", "sliding_window"});
  json["sliding_window"] = 16;
  json["cca_time1"] = 3;
  json["lm_head_bias"] = true;
  json["attention_bias"] = true;
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->tie_word_embeddings && spec->head_bias);
  const auto mixer = [&](size_t layer) {
    return *mixer_as<ConvolvedAttentionSpec>(spec->layers[layer]);
  };
  EXPECT_EQ(mixer(0).window, 0);
  EXPECT_EQ(mixer(1).window, 16);
  EXPECT_EQ(mixer(0).channel_taps, 2);
  EXPECT_EQ(mixer(0).head_taps, 3);
  EXPECT_TRUE(mixer(0).bias);
  EXPECT_EQ(mixer(0).rope.rotary_dim, 16);
  // The second of sixteen dimensions: the base to the power of -1/8.
  EXPECT_NEAR(mixer(0).rope.inverse_frequencies[1], std::pow(5e6, -0.125), 1e-6);
  EXPECT_NEAR(mixer(1).rope.inverse_frequencies[1], std::pow(1e4, -0.125), 1e-6);
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

TEST(Variants, GlmNextReadsBothSpellingsOfItsLinearLayers) {
  const auto expected = read(config_of("glm5_next_text"));
  ASSERT_TRUE(expected.ok());
  Json json = config_of("glm5_next_text");
  for (const char* key : {"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim",
                          "linear_lower_bound", "layer_types"}) {
    json.erase(key);
  }
  json["linear_attn_config"] = {
      {"num_heads", 4},           {"head_dim", 32},       {"short_conv_kernel_size", 4},
      {"gate_lower_bound", -5.0}, {"kda_layers", {0, 2}}, {"full_attn_layers", {1, 3}}};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(spec->layers[i].mixer->kind(), expected->layers[i].mixer->kind()) << i;
    EXPECT_TRUE(spec->layers[i].mixer->state({}) == expected->layers[i].mixer->state({})) << i;
  }
  json["linear_attn_config"]["kda_layers"] = {0, 1};
  expect_error(read(json), kInvalid, {"kda_layers", "full_attn_layers"});
}

TEST(Variants, Qwen4sLayersOfAttentionAndOfNgramsAreWhereItsListsSay) {
  const auto published = read(config_of("qwen3.8-flash-next"));
  const auto saved = read(config_of("qwen4_exp_text"));
  ASSERT_TRUE(published.ok()) << published.error().to_string();
  ASSERT_TRUE(saved.ok()) << saved.error().to_string();
  for (size_t i = 0; i < published->layers.size(); ++i) {
    EXPECT_EQ(published->layers[i].mixer->kind(), i % 4 == 3 ? "attention" : "gated_delta") << i;
    EXPECT_EQ(published->layers[i].ngrams.is_none(), i != 1) << i;
  }
  EXPECT_EQ(saved->layers[3].mixer->kind(), "attention");
  EXPECT_FALSE(saved->layers[0].ngrams.is_none());
  const NgramSpec& rows = published->layers[1].ngrams.rows;
  EXPECT_EQ(rows.heads(), 16);
  EXPECT_EQ(rows.row_dim(), 160);
  EXPECT_EQ(rows.boundary, 248044);
  EXPECT_EQ(published->layers[1].ngrams.conv_past(), 9);
  EXPECT_EQ(mixer_as<GatedDeltaSpec>(published->layers[0])->gate, Activation::kSigmoid);
  EXPECT_EQ(mixer_as<GatedDeltaSpec>(saved->layers[0])->gate, Activation::kSilu);
  const KeyIndexSpec& index = *attention_of(published->layers[3]).index;
  EXPECT_EQ(index.selection({}).whole, true);
  EXPECT_EQ(index.selected, 513);
}

TEST(Variants, Qwen4sEndOfTextMayBeTheFirstOfAList) {
  const auto spec = read_with("qwen3.8-flash-next", "eos_token_id", {7, 9});
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->layers[1].ngrams.rows.boundary, 7);
}

// Tokens of entries by layer and the number of layers whose experts are listed, or kinds by name.
TEST(Variants, DeepSeekV4ReadsBothSpellingsOfItsLayers) {
  const auto expected = read(config_of("deepseek_v4"));
  ASSERT_TRUE(expected.ok()) << expected.error().to_string();
  Json json = config_of("deepseek_v4");
  for (const char* key : {"layer_types", "compress_rates", "mlp_layer_types", "rope_parameters",
                          "partial_rotary_factor"}) {
    json.erase(key);
  }
  json["compress_ratios"] = {0, 8, 4, 4, 0};
  json["num_hash_layers"] = 2;
  json["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  for (size_t i = 0; i < 4; ++i) {
    const LayerSpec& layer = spec->layers[i];
    const LayerSpec& other = expected->layers[i];
    EXPECT_EQ(layer.moe.listed_tokens, other.moe.listed_tokens) << i;
    EXPECT_EQ(layer.moe.listed_tokens, i < 2 ? spec->vocab_size : 0) << i;
    const auto* mixer = mixer_as<CompressedAttentionSpec>(layer);
    const auto* same = mixer_as<CompressedAttentionSpec>(other);
    ASSERT_TRUE(mixer != nullptr && same != nullptr);
    EXPECT_EQ(mixer->unit, same->unit) << i;
    EXPECT_EQ(mixer->index.has_value(), i >= 2) << i;
    EXPECT_EQ(mixer->rope.inverse_frequencies, same->rope.inverse_frequencies) << i;
    EXPECT_EQ(mixer->rope.attention_factor, 1.0f) << i;
    EXPECT_TRUE(mixer->state({}) == same->state({})) << i;
  }
}

// Later releases guess several tokens ahead, with more layers behind the model's.
TEST(Variants, DeepSeekV4LeavesOutWhatGuessesFurtherTokens) {
  const auto expected = read(config_of("deepseek-v4-flash"));
  Json json = config_of("deepseek-v4-flash");
  json["compress_ratios"].push_back(0);
  json["compress_ratios"].push_back(0);
  json["dspark_block_size"] = 5;
  json["dspark_markov_rank"] = 256;
  json["dspark_noise_token_id"] = 128799;
  json["dspark_target_layer_ids"] = {40, 41, 42};
  const auto spec = read(json);
  ASSERT_TRUE(expected.ok() && spec.ok());
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  ASSERT_EQ(spec->layers.size(), expected->layers.size());
  for (size_t i = 0; i < spec->layers.size(); ++i) {
    EXPECT_TRUE(spec->layers[i].mixer->state({}) == expected->layers[i].mixer->state({})) << i;
  }
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

// Routed and shared experts have lists of their own; 0 and null are no limit, and dense layers have
// none.
TEST(Variants, LingLimitsTheUnitsOfListedLayers) {
  Json json = config_of("bailing_hybrid");
  json["expert_swiglu_limit_list"] = {4.0, 0.0, nullptr, 4.0, 9.0};
  json["share_expert_swiglu_limit_list"] = {0, 0, 5, 7};
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  const auto limited = [](float limit) {
    return GluOptions{.activation = Activation::kCappedSilu, .limit = limit};
  };
  EXPECT_EQ(spec->layers[0].dense_glu, GluOptions{});
  EXPECT_EQ(spec->layers[1].moe.glu, GluOptions{});
  EXPECT_EQ(spec->layers[1].moe.shared_glu, GluOptions{});
  EXPECT_EQ(spec->layers[2].moe.glu, GluOptions{});
  EXPECT_EQ(spec->layers[2].moe.shared_glu, limited(5));
  EXPECT_EQ(spec->layers[3].moe.glu, limited(4));
  EXPECT_EQ(spec->layers[3].moe.shared_glu, limited(7));
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

// Its code counts the tokens before a token's own, and so does the key of the published file.
TEST(Variants, MimosWindowSizeLeavesOutATokensOwn) {
  const auto spec = read_with("mimo_v2_flash", "sliding_window_size", 7);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(attention_of(spec->layers[1]).window, 8);
}

TEST(Variants, OtherKeysOfNemotronHAreReadBeforeItsOwn) {
  Json json = config_of("nemotron_h");
  json["mamba_n_groups"] = 4;
  json["mamba_d_conv"] = 3;
  json["mamba_conv_bias"] = false;
  const auto spec = read(json);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  const auto* mamba = mixer_as<Mamba2Spec>(spec->layers[0]);
  ASSERT_NE(mamba, nullptr);
  EXPECT_EQ(mamba->scan.groups, 4);
  EXPECT_EQ(mamba->conv_taps, 3);
  EXPECT_FALSE(mamba->conv_bias);
}

TEST(Variants, DeepSeekV4NormalisesWhateverItsConfigSays) {
  const auto spec = read_with("deepseek_v4_saved", "norm_topk_prob", false);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->layers.back().moe.router.normalize);
}

// A layer has the entries and the choice of the last source before it, or its own.
TEST(Variants, LayersOfOneModelShareEntriesAndChoices) {
  const auto spec = read(config_of("deepseek-v4.1-flash"));
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  const auto at = [&](size_t i) -> const CompressedAttentionSpec& {
    return *mixer_as<CompressedAttentionSpec>(spec->layers[i]);
  };
  EXPECT_EQ(at(0).unit, 0);
  EXPECT_TRUE(at(2).has_entries() && at(2).lends_entries && at(2).lends_choice);
  EXPECT_EQ(at(5).entries_of, 2);
  EXPECT_EQ(at(5).chosen_by, 2);
  EXPECT_EQ(at(19).entries_of, 14);
  EXPECT_EQ(at(20).unit, 1);
  ASSERT_TRUE(at(20).index && at(24).index);
  EXPECT_EQ(at(20).index->outer_selected, 2048);
  EXPECT_EQ(at(20).index->outer_tokens, 8);
  EXPECT_EQ(at(20).index->within, -1);
  EXPECT_EQ(at(24).index->within, 20);
  EXPECT_EQ(at(24).entries_of, 20);
  EXPECT_EQ(at(27).entries_of, 20);
  EXPECT_EQ(at(27).chosen_by, 24);
  EXPECT_FALSE(at(39).lends());
  EXPECT_NE(at(0).rope.inverse_frequencies, at(2).rope.inverse_frequencies);
  EXPECT_EQ(spec->layers[14].ngrams.rows.number, 1);
  EXPECT_EQ(spec->layers[14].ngrams.rows.seed, 140098);
  EXPECT_TRUE(spec->layers[2].ngrams.is_none());
  EXPECT_TRUE(spec->streams.reads_late);
}

}  // namespace
}  // namespace moeflux
