// Rotary frequencies and softmax scales against vectors computed with f64 Python.
#include "model/config/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/config/config.h"
#include "model/family/family.h"
#include "model/mixers/latent_attention.h"

namespace moeflux {
namespace {

struct Vector {
  size_t index;
  double frequency;
};

void expect_frequencies(const YarnSpec& yarn, const std::vector<Vector>& vectors) {
  const std::vector<float> frequencies = yarn_frequencies(yarn);
  ASSERT_EQ(frequencies.size(), static_cast<size_t>(yarn.dim) / 2);
  for (const Vector& v : vectors) {
    EXPECT_NEAR(frequencies[v.index], v.frequency, 1e-6 * v.frequency) << "frequency " << v.index;
  }
}

TEST(Yarn, FrequenciesOfDeepSeekV3) {
  expect_frequencies({.theta = 1e4, .dim = 64, .factor = 40.0, .original_max_position = 4096.0},
                     {{0, 1.0},
                      {8, 0.1},
                      {10, 0.0562341325},
                      {12, 0.0268793601},
                      {16, 0.0055},
                      {19, 0.00137051364},
                      {20, 0.000790569415},
                      {24, 2.5e-05},
                      {31, 3.33380358e-06}});
}

// beta_fast = beta_slow makes a step between two frequencies.
TEST(Yarn, FrequenciesOfKimiK2StepFrom19To20) {
  YarnSpec yarn{.theta = 5e4,
                .dim = 64,
                .factor = 32.0,
                .original_max_position = 4096.0,
                .beta_fast = 1.0,
                .beta_slow = 1.0};
  expect_frequencies(yarn, {{16, 0.00447213595},
                            {19, 0.00162175991},
                            {20, 3.61404677e-05},
                            {24, 9.34592988e-06},
                            {31, 8.76441291e-07}});
  yarn.factor = 64.0;
  expect_frequencies(
      yarn, {{16, 0.00447213595}, {19, 0.00162175991}, {20, 1.80702339e-05}, {31, 4.38220646e-07}});
}

TEST(Yarn, FrequenciesOfGptOssWithAndWithoutTruncation) {
  YarnSpec yarn{.theta = 1.5e5,
                .dim = 64,
                .factor = 32.0,
                .original_max_position = 4096.0,
                .truncate = false};
  expect_frequencies(yarn, {{8, 0.0508132748},
                            {10, 0.0193350011},
                            {12, 0.00679495949},
                            {16, 0.000456483919},
                            {19, 2.6396469e-05},
                            {31, 3.02351143e-07}});
  yarn.truncate = true;
  expect_frequencies(yarn, {{10, 0.0194509675}, {12, 0.00701571391}, {16, 0.000580947502}});
}

// The formula's end of the ramp lies behind the last dimension where a base is small.
TEST(Yarn, TheRampEndsAtTheLastDimensionAtMost) {
  YarnSpec yarn{
      .theta = 10.0, .dim = 16, .factor = 4.0, .original_max_position = 8192.0, .beta_fast = 512.0};
  expect_frequencies(yarn, {{0, 1.0},
                            {3, 0.421696503},
                            {4, 0.296463531},
                            {5, 0.207495199},
                            {6, 0.144485202},
                            {7, 0.100014107}});
  yarn.truncate = false;
  expect_frequencies(yarn, {{3, 0.421696503}, {4, 0.301042367}, {7, 0.101418383}});
}

// The formula's begin of the ramp lies before the first dimension where a context is short.
TEST(Yarn, TheRampBeginsAtTheFirstDimensionAtLeast) {
  expect_frequencies(
      {.theta = 1e4, .dim = 16, .factor = 4.0, .original_max_position = 64.0},
      {{0, 1.0}, {1, 0.237170825}, {2, 0.05}, {3, 0.00790569415}, {7, 7.90569415e-05}});
}

// Equal betas leave no room for a ramp, where its ends are no whole numbers.
TEST(Yarn, ARampWithoutWidthIsAStep) {
  YarnSpec yarn{.theta = 1e4,
                .dim = 16,
                .factor = 8.0,
                .original_max_position = 4096.0,
                .beta_fast = 4.0,
                .beta_slow = 4.0,
                .truncate = false};
  expect_frequencies(yarn, {{4, 0.01}, {5, 0.000395284708}, {7, 3.95284708e-05}});
  // Both ends are the first dimension.
  yarn = {.theta = 1e4, .dim = 16, .factor = 4.0, .original_max_position = 4.0};
  expect_frequencies(yarn, {{0, 1.0}, {1, 0.0790569415}, {2, 0.025}, {7, 7.90569415e-05}});
}

// By the publisher's definition, which compares wavelengths: the first frequencies of Llama 3.1.
TEST(Llama3Frequencies, DivideLongWavesOnly) {
  const auto own = default_frequencies(5e5, 128);
  const auto scaled = llama3_frequencies(5e5, 128, {8.0, 1.0, 4.0, 8192.0});
  for (size_t i = 0; i < own.size(); ++i) {
    const double wave = 2.0 * M_PI / static_cast<double>(own[i]);
    const double smooth = (8192.0 / wave - 1.0) / (4.0 - 1.0);
    const double between = (1.0 - smooth) * own[i] / 8.0 + smooth * own[i];
    const double expected = wave < 8192.0 / 4.0 ? own[i] : wave > 8192.0 ? own[i] / 8.0 : between;
    EXPECT_NEAR(scaled[i], expected, 1e-6 * expected) << i;
  }
  EXPECT_EQ(scaled.front(), own.front());
  EXPECT_EQ(scaled.back(), own.back() / 8.0f);
}

RopeSpec read(const std::string& json, const RopeDefaults& defaults) {
  auto config = Config::parse(json);
  EXPECT_TRUE(config.ok());
  const RopeSpec spec = read_rope(*config, defaults);
  EXPECT_TRUE(config->status().ok());
  return spec;
}

TEST(ReadRope, BothDialectsMeanTheSame) {
  const RopeSpec old_way = read(
      R"({"model_type": "m", "rope_theta": 50000.0, "rope_scaling": {"type": "yarn",
          "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0,
          "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}})",
      {.head_dim = 64});
  const RopeSpec new_way = read(
      R"({"model_type": "m", "rope_parameters": {"rope_type": "yarn", "rope_theta": 50000.0,
          "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 1.0,
          "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0}})",
      {.head_dim = 64});
  EXPECT_EQ(old_way.inverse_frequencies, new_way.inverse_frequencies);
  EXPECT_NEAR(old_way.inverse_frequencies.at(20), 3.61404677e-05, 1e-10);
  EXPECT_EQ(old_way.softmax_mscale, new_way.softmax_mscale);
}

TEST(ReadRope, CosinesAreScaledUnlessBothMscalesAreGiven) {
  const RopeSpec gpt_oss = read(
      R"({"model_type": "m", "rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn",
          "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": false}})",
      {.head_dim = 64});
  EXPECT_NEAR(gpt_oss.attention_factor, 1.34657359f, 1e-6f);
  EXPECT_EQ(gpt_oss.softmax_mscale, 1.0);
  const RopeSpec v3 = read(
      R"({"model_type": "m", "rope_theta": 10000.0, "rope_scaling": {"type": "yarn",
          "factor": 40, "original_max_position_embeddings": 4096, "mscale": 1.0,
          "mscale_all_dim": 1.0}})",
      {.head_dim = 64});
  EXPECT_EQ(v3.attention_factor, 1.0f);
  EXPECT_NEAR(v3.softmax_mscale, 1.3688879, 1e-6);
}

// Where each kind of layer has positions of its own, the key may stand beside the kinds.
TEST(ReadRope, ARampMayBeginBetweenDimensions) {
  const auto frequencies = [](const std::string& inner, const std::string& outer) {
    auto config = Config::parse(
        R"({"model_type": "m", "rope_parameters": {"full": {"rope_type": "yarn", "factor": 2.0,
            "rope_theta": 500.0, "original_max_position_embeddings": 24)" +
        inner + R"(}, "sliding": {"rope_type": "default", "rope_theta": 500.0})" + outer + "}}");
    EXPECT_TRUE(config.ok());
    const RopeSpec full = read_rope(*config, {.head_dim = 32, .layer_type = "full"});
    const RopeSpec sliding = read_rope(*config, {.head_dim = 32, .layer_type = "sliding"});
    EXPECT_TRUE(config->status().ok());
    EXPECT_TRUE(config->unread().empty());
    EXPECT_EQ(sliding.inverse_frequencies, default_frequencies(500.0, 32));
    return full.inverse_frequencies;
  };
  const std::vector<float> whole = frequencies("", "");
  const std::vector<float> between = frequencies("", R"(, "truncate": false)");
  EXPECT_NEAR(whole.at(2), 0.3448975, 1e-6);
  EXPECT_NEAR(between.at(2), 0.3265847, 1e-6);
  EXPECT_EQ(frequencies(R"(, "truncate": false)", ""), whole);
  EXPECT_EQ(frequencies(R"(, "truncate": true)", R"(, "truncate": false)"), between);
}

// As in transformers, whose frequencies have the exponents of the odd number.
TEST(ReadRope, AShareOfAnOddNumberOfDimensionsIsRoundedUp) {
  const auto read_share = [](const std::string& keys) {
    return read(
        R"({"model_type": "m", "partial_rotary_factor": 0.334, "rope_theta": 1e4)" + keys + "}",
        {.head_dim = 64});
  };
  const RopeSpec rope = read_share("");
  EXPECT_EQ(rope.rotary_dim, 22);
  ASSERT_EQ(rope.inverse_frequencies.size(), 11u);
  EXPECT_NEAR(rope.inverse_frequencies[10], std::pow(1e4, -20.0 / 21.0), 1e-9);
  const RopeSpec linear = read_share(R"(, "rope_scaling": {"type": "linear", "factor": 2.0})");
  EXPECT_EQ(linear.rotary_dim, 22);
  EXPECT_NEAR(linear.inverse_frequencies[10], std::pow(1e4, -20.0 / 21.0) / 2.0, 1e-9);
}

TEST(ReadRope, AnAttentionFactorIsTheWholeFactor) {
  const auto factor_of = [](const std::string& keys) {
    return read(R"({"model_type": "m", "rope_theta": 1e4, "rope_scaling": {"type": "yarn",
                    "factor": 4.0, "original_max_position_embeddings": 64)" +
                    keys + "}}",
                {.head_dim = 64})
        .attention_factor;
  };
  const float usual = factor_of("");
  EXPECT_NEAR(usual, 1.0 + 0.1 * std::log(4.0), 1e-6);
  EXPECT_FLOAT_EQ(factor_of(R"(, "attention_factor": 0.5)"), 0.5f);
  EXPECT_FLOAT_EQ(factor_of(R"(, "attention_factor": 0.5, "mscale": 2, "mscale_all_dim": 1)"),
                  0.5f);
  EXPECT_NEAR(factor_of(R"(, "mscale": 2, "mscale_all_dim": 1)"),
              (1.0 + 0.2 * std::log(4.0)) / (1.0 + 0.1 * std::log(4.0)), 1e-6);
  // The reference asks whether they are true, and 0 is not.
  EXPECT_EQ(factor_of(R"(, "mscale": 0, "mscale_all_dim": 1)"), usual);
  EXPECT_EQ(factor_of(R"(, "mscale": 2, "mscale_all_dim": 0)"), usual);
}

TEST(ReadRope, LinearScalingDividesEveryFrequency) {
  const RopeSpec spec = read(
      R"({"model_type": "m", "rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 8}})",
      {.head_dim = 64});
  const std::vector<float> usual = default_frequencies(1e4, 64);
  ASSERT_EQ(spec.inverse_frequencies.size(), usual.size());
  for (size_t i = 0; i < usual.size(); ++i) {
    EXPECT_FLOAT_EQ(spec.inverse_frequencies[i] * 8.0f, usual[i]);
  }
  EXPECT_EQ(spec.attention_factor, 1.0f);
}

// The scale of a family with DeepSeek-V3's head sizes.
float latent_scale(int nope, int rope, const std::string& scaling) {
  auto config = Config::parse(
      R"({"model_type": "deepseek_v3", "hidden_act": "silu", "hidden_size": 7168,
          "num_hidden_layers": 4, "vocab_size": 1024, "num_attention_heads": 64,
          "q_lora_rank": 1536, "kv_lora_rank": 512, "v_head_dim": 128, "rms_norm_eps": 1e-6,
          "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1,
          "topk_group": 1, "routed_scaling_factor": 2.5,
          "moe_intermediate_size": 64, "intermediate_size": 128, "first_k_dense_replace": 1,
          "max_position_embeddings": 4096, "tie_word_embeddings": false, "rope_theta": 10000.0,
          "qk_nope_head_dim": )" +
      std::to_string(nope) + R"(, "qk_rope_head_dim": )" + std::to_string(rope) +
      R"(, "rope_scaling": )" + scaling + "}");
  EXPECT_TRUE(config.ok());
  const auto family = find_family("deepseek_v3");
  EXPECT_TRUE(family.ok());
  const auto spec = (*family)->read_spec(*config);
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().to_string());
  return spec.ok() ? mixer_as<LatentAttentionSpec>(spec->layers.at(3))->scale : 0.0f;
}

std::string yarn_of(int factor) {
  return R"({"type": "yarn", "original_max_position_embeddings": 4096, "mscale": 1.0,
             "mscale_all_dim": 1.0, "factor": )" +
         std::to_string(factor) + "}";
}

TEST(LatentAttentionScale, HoldsMscaleSquared) {
  EXPECT_NEAR(latent_scale(128, 64, yarn_of(40)), 0.1352337789f, 1e-7f);  // V3
  EXPECT_NEAR(latent_scale(128, 64, yarn_of(32)), 0.1308608f, 1e-7f);     // Kimi-K2
  EXPECT_NEAR(latent_scale(128, 64, yarn_of(64)), 0.1446796f, 1e-7f);     // Kimi-K2.5
  EXPECT_NEAR(latent_scale(192, 64, "null"), 0.0625f, 1e-8f);             // GLM-4.7-Flash
}

}  // namespace
}  // namespace moeflux
