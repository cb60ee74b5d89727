#include "model/config/config_keys.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "model/mixers/attention.h"

namespace moeflux {
namespace {

ModelSpec sparse_and_dense() {
  ModelSpec spec;
  spec.layers.resize(2);
  spec.layers[0].dense_intermediate_size = 64;
  AttentionSpec sliding;
  sliding.window = 16;
  spec.layers[0].mixer = share_mixer(sliding);
  spec.layers[1].mixer = share_mixer(AttentionSpec{});
  spec.layers[1].moe = {.num_experts = 8, .experts_per_token = 2};
  return spec;
}

TEST(ConfigKeys, NamesAreComparedWhole) {
  EXPECT_TRUE(is_harmless_key("architectures"));
  EXPECT_TRUE(is_harmless_key("top_p"));
  for (const char* key : {"", " ", "architecture", "rchitectures", "do_sample early_stopping",
                          "dropout_scale", "token_id", "image"}) {
    EXPECT_FALSE(is_harmless_key(key)) << key;
  }
}

TEST(ConfigKeys, KindsOfHarmlessKeysNeedNoList) {
  for (const char* key :
       {"eos_token_id", "audio_config", "vision_start_token_id", "embd_pdrop",
        "router_jitter_noise", "mtp_loss_scaling_factor", "_name_or_path", "dspark_block_size"}) {
    EXPECT_TRUE(is_harmless_key(key)) << key;
  }
}

TEST(ConfigKeys, FactorsAreNeutralAtOneAndSwitchesAtNothing) {
  const ModelSpec spec = sparse_and_dense();
  const auto meaning = [&](const char* key, const Json& value) {
    return meaning_of(spec, key, value);
  };
  EXPECT_EQ(meaning("logit_scale", 1), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("logit_scale", 0), KeyMeaning::kChanges);
  EXPECT_EQ(meaning("logit_scale", "1"), KeyMeaning::kChanges);
  EXPECT_EQ(meaning("mlp_multipliers", {1.0, 1.0}), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("mlp_multipliers", {1.0, 0.5}), KeyMeaning::kChanges);
  for (const Json& off : {Json(), Json(0), Json(false), Json(""), Json("none"), Json::array(),
                          Json::object(), Json({0, nullptr})}) {
    EXPECT_EQ(meaning("gating", off), KeyMeaning::kNeutral) << off.dump();
  }
  for (const Json& on : {Json(1), Json(true), Json("per_head"), Json({0, 1}), Json({{"a", 0}})}) {
    EXPECT_EQ(meaning("gating", on), KeyMeaning::kChanges) << on.dump();
  }
  EXPECT_EQ(meaning("is_causal", true), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("is_causal", false), KeyMeaning::kChanges);
  EXPECT_EQ(meaning("frobnication", 8), KeyMeaning::kUnknown);
}

TEST(ConfigKeys, WhatTheSpecHasIsNeutralUnderOtherNames) {
  const ModelSpec spec = sparse_and_dense();
  const auto meaning = [&](const char* key, const Json& value) {
    return meaning_of(spec, key, value);
  };
  EXPECT_EQ(meaning("mlp_layer_types", {"dense", "sparse"}), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("mlp_layer_types", {"sparse", "sparse"}), KeyMeaning::kChanges);
  EXPECT_EQ(meaning("layer_types", {"sliding_attention", "full_attention"}), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("layer_types", {"full_attention", "full_attention"}), KeyMeaning::kChanges);
  EXPECT_EQ(meaning("moe_k", 2), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("moe_k", 4), KeyMeaning::kChanges);
  EXPECT_EQ(meaning("swiglu_limit", 0.0), KeyMeaning::kNeutral);
  EXPECT_EQ(meaning("swiglu_limit", 7.0), KeyMeaning::kChanges);
}

TEST(ConfigKeys, LayersThatDifferAgreeWithNoSingleNumber) {
  ModelSpec spec = sparse_and_dense();
  EXPECT_EQ(meaning_of(spec, "attention_multiplier", 1.0), KeyMeaning::kNeutral);
  AttentionSpec other;
  other.scale = 0.5f;
  spec.layers[1].mixer = share_mixer(other);
  EXPECT_EQ(meaning_of(spec, "attention_multiplier", 1.0), KeyMeaning::kChanges);
  EXPECT_EQ(meaning_of(spec, "attention_multiplier", 0.5), KeyMeaning::kChanges);
}

}  // namespace
}  // namespace moeflux
