#include "model/gguf/gguf_meanings.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "model/families/gguf_test_util.h"
#include "model/mixers/attention.h"
#include "model/mixers/latent_attention.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::array_of;
using testing::config_of;
using testing::expect_error;
using testing::GgufBytes;
using testing::GgufImage;
using testing::model_of;
using testing::open;
using testing::spec_of;

TEST(GgufConfig, KeysThatChangeNumbersAreReadOrRefusedByName) {
  struct Case {
    const char* key;
    float refused;
    std::vector<float> neutral;
  };
  for (const auto& [key, refused, neutral] :
       std::vector<Case>{{"rope.scaling.yarn_ext_factor", 0.5f, {1.0f, -1.0f}},
                         {"rope.scaling.yarn_log_multiplier", 0.1f, {0.0f}},
                         {"rope.scaling.alpha", 2.0f, {0.0f}},
                         {"attention.clamp_kqv", 8.0f, {0.0f}},
                         {"attention.max_alibi_bias", 8.0f, {0.0f}},
                         {"attention.temperature_scale", 0.1f, {0.0f}},
                         {"attention.output_scale", 0.5f, {0.0f, 1.0f}},
                         {"attention.value_scale", 0.5f, {0.0f, 1.0f}},
                         {"expert_group_scale", 0.05f, {0.0f, 1.0f}},
                         {"swiglu_clamp_exp", 7.0f, {0.0f}},
                         {"expert_weights_scale", 2.5f, {0.0f, 1.0f}},
                         {"logit_scale", 0.5f, {0.0f, 1.0f}},
                         {"embedding_scale", 12.0f, {0.0f, 1.0f}},
                         {"residual_scale", 0.2f, {0.0f, 1.0f}},
                         {"attn_logit_softcapping", 50.0f, {0.0f}},
                         {"final_logit_softcapping", 30.0f, {0.0f}},
                         {"router_logit_softcapping", 30.0f, {0.0f}}}) {
    const auto yarn = [](const std::string& own, float value) {
      GgufImage image = model_of("qwen3moe");
      image.text("qwen3moe.rope.scaling.type", "yarn").f32("qwen3moe.rope.scaling.factor", 4.0f);
      return image.f32("qwen3moe." + own, value);
    };
    const auto spec = spec_of(yarn(key, refused));
    ASSERT_FALSE(spec.ok()) << key;
    EXPECT_EQ(spec.error().code(), ErrorCode::kUnsupported) << spec.error().to_string();
    for (const float value : neutral) {
      const auto same = spec_of(yarn(key, value));
      ASSERT_TRUE(same.ok()) << same.error().to_string();
      EXPECT_TRUE(same->unread_keys.empty()) << key;
    }
  }
}

TEST(GgufConfig, KeysWithoutEffectAreNotTold) {
  GgufImage image = model_of("qwen3moe");
  const std::string p = "qwen3moe.";
  image.u32(p + "vision.block_count", 27).u32(p + "audio.block_count", 12);
  image.u32(p + "image_token_id", 7).u32(p + "pooling_type", 1);
  image.key(p + "rope.scaling.finetuned", 7, "\x01").key(p + "attention.causal", 7, "\x01");
  image.u32(p + "expert_gating_func", 1).u32(p + "expert_group_count", 1);
  const auto spec = spec_of(image);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  const std::string off(1, '\0');
  expect_error(config_of(model_of("qwen3moe").key(p + "attention.causal", 7, off)),
               ErrorCode::kUnsupported, {"m.gguf", "qwen3moe.attention.causal", "false"});
  expect_error(spec_of(model_of("qwen3moe").u32(p + "expert_gating_func", 2)),
               ErrorCode::kUnsupported, {"sigmoid"});
}

// As llama.cpp reads files of its first years.
TEST(GgufConfig, AFactorWithoutATypeDividesPositions) {
  const auto frequencies = [](const GgufImage& image) {
    const auto spec = spec_of(image);
    EXPECT_TRUE(spec.ok()) << spec.error().to_string();
    return spec.ok() ? first_mixer<AttentionSpec>(*spec)->rope.inverse_frequencies
                     : std::vector<float>{};
  };
  const std::vector<float> usual = frequencies(model_of("qwen3moe"));
  ASSERT_FALSE(usual.empty());
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    const std::vector<float> divided =
        frequencies(model_of("qwen3moe").f32(std::string("qwen3moe.") + key, 4.0f));
    ASSERT_EQ(divided.size(), usual.size());
    for (size_t i = 0; i < usual.size(); ++i) EXPECT_FLOAT_EQ(divided[i] * 4.0f, usual[i]);
  }
  GgufImage none = model_of("qwen3moe").f32("qwen3moe.rope.scaling.factor", 4.0f);
  EXPECT_EQ(frequencies(none.text("qwen3moe.rope.scaling.type", "none")), usual);
}

// The converter writes attention_factor of a config.json, the whole product, as yarn_attn_factor.
TEST(GgufConfig, YarnMultipliesByTheFactorThatTheFileStates) {
  const auto factor = [](float stated, float attention) {
    GgufImage image = model_of("qwen3moe");
    image.text("qwen3moe.rope.scaling.type", "yarn").f32("qwen3moe.rope.scaling.factor", 4.0f);
    image.f32("qwen3moe.rope.scaling.yarn_attn_factor", stated);
    const auto spec = spec_of(image.f32("qwen3moe.rope.scaling.attn_factor", attention));
    EXPECT_TRUE(spec.ok()) << spec.error().to_string();
    return spec.ok() ? first_mixer<AttentionSpec>(*spec)->rope.attention_factor : 0.0f;
  };
  const float usual = 1.138629436f;  // 1 + 0.1 ln 4
  EXPECT_FLOAT_EQ(factor(0.5f, 1.0f), 0.5f);
  EXPECT_FLOAT_EQ(factor(0.5f, 3.0f), 1.5f);
  EXPECT_FLOAT_EQ(factor(1.0f, 1.0f), usual);
  EXPECT_FLOAT_EQ(factor(0.0f, 1.0f), usual);
}

// As llama.cpp reads it (load_swa_pattern). The architecture says whether the first layer slides.
TEST(GgufConfig, OneNumberAsAPatternIsAnInterval) {
  const auto types = [](const std::string& architecture, uint32_t interval) {
    GgufImage image = model_of(architecture, 4);
    image.u32(architecture + ".attention.sliding_window", 16);
    image.f32(architecture + ".attention.scale", 0.2f);
    image.u32(architecture + ".attention.sliding_window_pattern", interval);
    const auto text = config_of(image);
    EXPECT_TRUE(text.ok()) << text.error().to_string();
    std::string out;
    const Json config = text.ok() ? *parse_json(*text, "m.gguf", {}) : Json::object();
    for (const Json& type : config.value("layer_types", Json::array())) {
      out += type == "full_attention" ? 'f' : 's';
    }
    return out;
  };
  EXPECT_EQ(types("gpt-oss", 2), "sfsf");
  EXPECT_EQ(types("gpt-oss", 3), "ssfs");
  EXPECT_EQ(types("gpt-oss", 1), "ffff");
  EXPECT_EQ(types("gpt-oss", 0), "ssss");
  EXPECT_EQ(types("granite_swa", 2), "fsfs");
}

TEST(GgufConfig, AScaleOfNothingLeavesWeightsOfExpertsAlone) {
  for (const float stated : {0.0f, 1.0f, 2.5f}) {
    GgufImage image = model_of("dots1");
    image.u32("dots1.expert_gating_func", 2).f32("dots1.expert_weights_scale", stated);
    const auto spec = spec_of(image);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_EQ(last_moe(*spec).router.scale, stated == 0.0f ? 1.0f : stated);
  }
}

// llama.cpp's converter does not write the length, and its reader halves it.
TEST(GgufConfig, FullLayersOfStepTurnHalfOfAHead) {
  for (const uint32_t stated : {0u, 32u}) {
    GgufImage image = model_of("step35");
    image.u32("step35.attention.key_length", 32).u32("step35.attention.value_length", 32);
    image.u32("step35.attention.head_count_kv", 2).u32("step35.attention.sliding_window", 16);
    image.key("step35.attention.sliding_window_pattern", 9, array_of({1, 0}));
    image.u32("step35.expert_shared_feed_forward_length", 32);
    if (stated != 0) image.u32("step35.rope.dimension_count", stated);
    const auto spec = spec_of(image);
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    const auto turned = [&](size_t layer) {
      return mixer_as<AttentionSpec>(spec->layers[layer])->rope.rotary_dim;
    };
    EXPECT_EQ(turned(0), 32);
    EXPECT_EQ(turned(1), 16);
  }
}

TEST(GgufConfig, BiasesOfAttentionAreThoseOfTheTensors) {
  const auto biases = [](const std::string& architecture,
                         std::initializer_list<const char*> projections) {
    GgufImage image = model_of(architecture);
    constexpr uint32_t kFloats = 0;
    uint64_t offset = 0;
    for (const char* name : projections) {
      image.tensor(formatted("blk.0.{}.bias", name), {64}, kFloats, offset);
      offset += 256;
    }
    const auto spec = spec_of(image.zeros(4096));
    EXPECT_TRUE(spec.ok()) << spec.error().to_string();
    if (!spec.ok()) return std::pair(false, false);
    EXPECT_TRUE(spec->unread_keys.empty());
    const auto& attention = *mixer_as<AttentionSpec>(spec->layers[0]);
    return std::pair(attention.qkv_bias, attention.o_bias);
  };
  for (const char* architecture : {"olmoe", "hy_v3", "qwen3moe"}) {
    EXPECT_EQ(biases(architecture, {}), std::pair(false, false));
    EXPECT_EQ(biases(architecture, {"attn_q", "attn_output"}), std::pair(true, true));
    EXPECT_EQ(biases(architecture, {"attn_qkv"}), std::pair(true, false));
  }
}

// llama.cpp's converter divides the frequencies of Llama 3.1's positions, whatever the family.
TEST(GgufConfig, FrequenciesAreDividedByTheFactorsOfTheFile) {
  for (const char* architecture : {"llama", "exaone-moe", "granite", "granitemoe"}) {
    const std::string p = architecture;
    GgufImage image = model_of(architecture);
    image.f32(p + ".attention.scale", 0.25f).f32(p + ".rope.freq_base", 10000.0f);
    std::erase_if(image.keys, [&](const std::string& key) {
      return p == "granite" && key.find(".expert_") != std::string::npos;
    });
    constexpr uint32_t kFloats = 0;
    image.tensor("rope_freqs.weight", {8}, kFloats, 0);
    GgufBytes factors;
    for (const float factor : {1.0f, 1.0f, 1.5f, 2.0f, 4.0f, 8.0f, 8.0f, 8.0f}) {
      factors.number(factor);
    }
    image.data = factors.text();
    const auto spec = spec_of(image);
    ASSERT_TRUE(spec.ok()) << architecture << ": " << spec.error().to_string();
    const RopeSpec& rope = mixer_as<AttentionSpec>(spec->layers[0])->rope;
    ASSERT_EQ(rope.inverse_frequencies.size(), 8u) << architecture;
    EXPECT_FLOAT_EQ(rope.inverse_frequencies[2], 0.1f / 1.5f) << architecture;
    EXPECT_FLOAT_EQ(rope.inverse_frequencies[4], 0.01f / 4.0f) << architecture;
    const auto tensors = tensors_of(image);
    ASSERT_TRUE(tensors.ok());
    EXPECT_EQ(tensors->find("rope_freqs.weight"), nullptr) << architecture;
  }
}

TEST(GgufConfig, DenseQwen2HasBiasesOfItsInputsAlone) {
  for (const char* architecture : {"qwen2", "qwen2vl"}) {
    GgufImage image = model_of(architecture);
    std::erase_if(image.keys,
                  [](const std::string& key) { return key.find(".expert_") != std::string::npos; });
    constexpr uint32_t kFloats = 0;
    image.tensor("blk.0.attn_q.bias", {64}, kFloats, 0);
    const auto spec = spec_of(image.zeros(256));
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    EXPECT_EQ(spec->model_type, "qwen2");
    const auto& attention = *mixer_as<AttentionSpec>(spec->layers[0]);
    EXPECT_TRUE(attention.qkv_bias && !attention.o_bias && attention.qk_norm == QkNorm::kNone);
    EXPECT_EQ(spec->layers[0].dense_intermediate_size, 128);
  }
}

TEST(GgufConfig, YarnWithoutALengthStretchesThatOfTheContext) {
  GgufImage image = model_of("qwen3moe");
  image.text("qwen3moe.rope.scaling.type", "yarn").f32("qwen3moe.rope.scaling.factor", 4.0f);
  const auto text = config_of(image);
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_NE(text->find(R"("original_max_position_embeddings": 512)"), std::string::npos) << *text;
}

TEST(GgufConfig, ErrorsNameKeysOfSingleFamiliesAndThoseOfOtherConverters) {
  const auto message = [](const GgufImage& image, std::string_view error) {
    return gguf_message(error, "m.gguf", GgufKeys(*open(image)));
  };
  const GgufImage usual = model_of("qwen3moe");
  EXPECT_EQ(message(usual, "config.json: route_norm is 2"),
            "m.gguf: qwen3moe.expert_weights_norm is 2");
  EXPECT_EQ(message(usual, "config.json: sparse_block_size is 0"),
            "m.gguf: qwen3moe.attention.indexer.block_size is 0");
  GgufImage other = model_of("qwen3moe");
  other.f32("qwen3moe.rope.scale_linear", 4.0f);
  EXPECT_EQ(message(other, "config.json: rope_scaling: factor is -1"),
            "m.gguf: qwen3moe.rope.scale_linear is -1");
}

TEST(GgufConfig, ErrorsNameTheFileAndItsKeys) {
  const auto error_of = [](const GgufImage& image) {
    const auto model = open(image);
    const auto text = gguf_config(*model);
    EXPECT_TRUE(text.ok()) << text.error().to_string();
    auto config = Config::parse(*text);
    const auto spec = (*find_family(config->model_type()))->read_spec(*config);
    EXPECT_FALSE(spec.ok());
    return gguf_message(spec.error().message(), "m.gguf", GgufKeys(*model));
  };
  GgufImage many = model_of("qwen3moe");
  many.keys[8] = GgufImage().u32("qwen3moe.expert_used_count", 9).keys[0];
  EXPECT_EQ(error_of(many), "m.gguf: qwen3moe.expert_used_count 9 exceeds qwen3moe.expert_count 8");
  GgufImage none = model_of("qwen3moe");
  none.keys[8] = GgufImage().u32("qwen3moe.expert_used_count", 0).keys[0];
  EXPECT_EQ(error_of(none), "m.gguf: qwen3moe.expert_used_count is 0, expected 1 to 1024");
  GgufImage scaled = model_of("qwen3moe");
  scaled.text("qwen3moe.rope.scaling.type", "longrope").f32("qwen3moe.rope.scaling.factor", 4.0f);
  const std::string message = error_of(scaled);
  EXPECT_TRUE(message.starts_with("m.gguf: qwen3moe.rope.scaling.type \"longrope\"")) << message;
  EXPECT_EQ(message.find("config.json"), std::string::npos) << message;
}

TEST(GgufConfig, GlmFlashOfOllamaHasItsWidthsInOtherKeys) {
  GgufImage image = model_of("glm4moelite");
  const auto u32 = [&](const char* key, uint32_t value) {
    image.u32(std::string("glm4moelite.") + key, value);
  };
  u32("attention.kv_lora_rank", 64);
  u32("rope.dimension_count", 16);
  u32("attention.key_length", 48);
  u32("attention.value_length", 32);
  u32("attention.key_length_mla", 80);
  u32("attention.value_length_mla", 64);
  const auto spec = spec_of(image);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->model_type, "deepseek_v3");
  const auto* latent = first_mixer<LatentAttentionSpec>(*spec);
  ASSERT_NE(latent, nullptr);
  EXPECT_EQ(latent->nope_dim, 32);
  EXPECT_EQ(latent->v_dim, 32);
}

// A hybrid with Mamba-2 and without experts; key-value heads of each block.
GgufImage hybrid_without_experts(const std::string& architecture,
                                 std::initializer_list<uint32_t> kv_heads) {
  GgufImage image = model_of(architecture, static_cast<uint32_t>(kv_heads.size()));
  image.keys[7] = GgufImage().u32(architecture + ".expert_count", 0).keys[0];
  image.keys[8] = GgufImage().u32(architecture + ".expert_used_count", 0).keys[0];
  image.key(architecture + ".attention.head_count_kv", 9, array_of(kv_heads));
  for (const auto& [key, value] : {std::pair{"time_step_rank", 4u},
                                   {"inner_size", 128u},
                                   {"group_count", 1u},
                                   {"state_size", 16u},
                                   {"conv_kernel", 4u}}) {
    image.u32(architecture + ".ssm." + key, value);
  }
  return image;
}

bool scans(const LayerSpec& layer) {
  return layer.mixer->config_value("layer_type") == "linear_attention";
}

// Granite 4.0 H Micro.
TEST(GgufConfig, HybridsOfGraniteMayHaveNoExperts) {
  GgufImage image = hybrid_without_experts("granitehybrid", {0, 2});
  image.f32("granitehybrid.attention.scale", 0.25f);
  const auto spec = spec_of(image.zeros(4096));
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  ASSERT_EQ(spec->num_layers(), 2);
  EXPECT_TRUE(scans(spec->layers[0]));
  EXPECT_FALSE(scans(spec->layers[1]));
  for (const LayerSpec& layer : spec->layers) {
    EXPECT_EQ(layer.dense_intermediate_size, 128);
    EXPECT_EQ(layer.moe.num_experts, 0);
  }
}

// Nemotron Nano 2.
TEST(GgufConfig, NemotronHMayHaveNoExperts) {
  GgufImage image = hybrid_without_experts("nemotron_h", {0, 2, 0});
  image.keys[5] =
      GgufImage().key("nemotron_h.feed_forward_length", 9, array_of({0, 0, 128})).keys[0];
  const auto spec = spec_of(image.zeros(4096));
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  ASSERT_EQ(spec->num_layers(), 3);
  EXPECT_TRUE(scans(spec->layers[0]));
  EXPECT_EQ(mixer_as<AttentionSpec>(spec->layers[1])->num_kv_heads, 2);
  EXPECT_EQ(spec->layers[2].dense_intermediate_size, 128);
  EXPECT_EQ(spec->layers[0].dense_intermediate_size + spec->layers[1].dense_intermediate_size, 0);
}

}  // namespace
}  // namespace moeflux
