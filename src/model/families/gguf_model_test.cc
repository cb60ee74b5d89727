#include "model/gguf/gguf_model.h"

#include <gtest/gtest.h>

#include <set>

#include "model/config/config.h"
#include "model/families/gguf_test_util.h"
#include "model/family/family.h"
#include "model/gguf/gguf_architecture.h"
#include "model/mixers/latent_attention.h"
#include "tests/support/expect_error.h"
#include "tests/support/gguf_bytes.h"

namespace moeflux {
namespace {

using testing::array_of;
using testing::config_of;
using testing::expect_error;
using testing::GgufBytes;
using testing::GgufImage;
using testing::model_of;
using testing::spec_of;
using testing::tensors_of;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kQ80 = 8;
constexpr uint32_t kI32 = 26;
constexpr uint32_t kArray = 9;

TEST(GgufConfig, KeysBecomeWhatTheFamilyReads) {
  GgufImage image = model_of("qwen3moe");
  image.u32("qwen3moe.attention.head_count_kv", 2).u32("qwen3moe.attention.key_length", 32);
  image.f32("qwen3moe.rope.freq_base", 1e6f);
  const auto spec = spec_of(image);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->num_layers(), 2);
  EXPECT_EQ(spec->hidden_size, 64);
  EXPECT_EQ(spec->vocab_size, 256);
  EXPECT_EQ(spec->max_position_embeddings, 512);
  EXPECT_FLOAT_EQ(spec->rms_norm_eps, 1e-6f);
  EXPECT_TRUE(spec->tie_word_embeddings);  // there is no output.weight
  const MoeSpec& moe = spec->layers[1].moe;
  EXPECT_EQ(moe.num_experts, 8);
  EXPECT_EQ(moe.moe_intermediate_size, 96);
  EXPECT_TRUE(moe.router.normalize);  // the file does not say so, the architecture does
  EXPECT_TRUE(spec->unread_keys.empty());
}

TEST(GgufConfig, PredictingBlocksAreNoLayers) {
  GgufImage image = model_of("qwen3moe", 3);
  image.u32("qwen3moe.nextn_predict_layers", 1);
  EXPECT_EQ(spec_of(image)->num_layers(), 2);
}

TEST(GgufConfig, PredictingBlocksAreOneNumber) {
  GgufImage image = model_of("qwen3moe", 3);
  image.key("qwen3moe.nextn_predict_layers", kArray, array_of({1, 1, 1}));
  expect_error(spec_of(image), ErrorCode::kCorruption,
               {"qwen3moe.nextn_predict_layers is of type array, expected a whole number"});
}

TEST(GgufConfig, AKeyMayBeANumberOrOneForEachBlock) {
  GgufImage image = model_of("qwen3moe");
  image.key("qwen3moe.attention.head_count_kv", kArray, array_of({2, 2}));
  ASSERT_TRUE(spec_of(image).ok());
  GgufImage differing = model_of("qwen3moe");
  differing.key("qwen3moe.attention.head_count_kv", kArray, array_of({2, 4}));
  expect_error(spec_of(differing), ErrorCode::kUnsupported,
               {"m.gguf", "qwen3moe.attention.head_count_kv", "2 and 4"});
  GgufImage longer = model_of("qwen3moe");
  longer.key("qwen3moe.attention.head_count_kv", kArray, array_of({2, 2, 2}));
  expect_error(spec_of(longer), ErrorCode::kCorruption,
               {"qwen3moe.attention.head_count_kv", "3 elements", "expected 2"});
}

TEST(GgufConfig, LatentModelsAreToldApartByTheirKeys) {
  const auto latent = [](uint32_t blocks, uint32_t vocab_size) {
    GgufImage image = model_of("deepseek2", blocks);
    image.keys.erase(image.keys.begin() + 4);  // vocab_size
    image.u32("deepseek2.vocab_size", vocab_size);
    image.u32("deepseek2.attention.kv_lora_rank", 64).u32("deepseek2.rope.dimension_count", 16);
    image.u32("deepseek2.attention.key_length_mla", 48);
    image.u32("deepseek2.attention.value_length_mla", 32);
    return image;
  };
  const auto type_of = [](const GgufImage& image) {
    const auto spec = spec_of(image);
    return spec.ok() ? spec->model_type : spec.error().to_string();
  };
  EXPECT_EQ(type_of(latent(2, 256)), "deepseek_v2");  // no key: softmax
  EXPECT_EQ(type_of(latent(2, 256).u32("deepseek2.expert_gating_func", 1)), "deepseek_v2");
  EXPECT_EQ(type_of(latent(2, 256).u32("deepseek2.expert_gating_func", 2)), "deepseek_v3");
  EXPECT_EQ(type_of(latent(47, 154880)), "deepseek_v3");
  expect_error(spec_of(latent(2, 256).u32("deepseek2.expert_gating_func", 3)),
               ErrorCode::kUnsupported, {"deepseek2.expert_gating_func", "3"});
}

/// DeepSeek-V4 with two layers, of which the second chooses among entries.
GgufImage deepseek4(std::initializer_list<uint32_t> units = {0, 4, 0}) {
  GgufImage image = model_of("deepseek4");
  const auto u32 = [&](const char* key, uint32_t value) {
    image.u32(std::string("deepseek4.") + key, value);
  };
  u32("attention.key_length", 32);
  u32("attention.q_lora_rank", 64);
  u32("attention.output_group_count", 2);
  u32("attention.output_lora_rank", 32);
  u32("attention.sliding_window", 16);
  u32("attention.indexer.head_count", 4);
  u32("attention.indexer.key_length", 32);
  u32("attention.indexer.top_k", 3);
  u32("rope.dimension_count", 16);
  u32("expert_shared_count", 1);
  u32("expert_gating_func", 4);
  u32("hash_layer_count", 1);
  u32("hyper_connection.count", 4);
  u32("hyper_connection.sinkhorn_iterations", 20);
  image.f32("deepseek4.hyper_connection.epsilon", 1e-6f);
  image.f32("deepseek4.rope.freq_base", 1e4f);
  image.f32("deepseek4.attention.compress_rope_freq_base", 1.6e5f);
  image.f32("deepseek4.expert_weights_scale", 1.5f);
  image.f32("deepseek4.swiglu_clamp_exp", 10.0f);
  return image.key("deepseek4.attention.compress_ratios", kArray, array_of(units));
}

TEST(GgufConfig, RatiosOfBlocksThatAreNotThereAreLeftOut) {
  const auto spec = spec_of(deepseek4());
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  ASSERT_EQ(spec->num_layers(), 2);
  EXPECT_EQ(spec->layers[0].moe.listed_tokens, 256);
  EXPECT_FALSE(spec->layers[0].moe.correction_bias);
  EXPECT_TRUE(spec->layers[1].moe.correction_bias);
  EXPECT_FLOAT_EQ(spec->layers[1].moe.glu.limit, 10.0f);
  EXPECT_EQ(spec->streams.count, 4);
  EXPECT_TRUE(spec->unread_keys.empty());
  // A block that the file counts as predicting and does not hold is one of the layers.
  EXPECT_EQ(spec_of(deepseek4().u32("deepseek4.nextn_predict_layers", 1))->num_layers(), 2);
  GgufImage predicting = deepseek4().u32("deepseek4.nextn_predict_layers", 1);
  predicting.tensor("blk.1.nextn.eh_proj.weight", {64, 1}, kF32, 0).zeros(256);
  EXPECT_EQ(spec_of(predicting)->num_layers(), 1);
  expect_error(spec_of(deepseek4({4})), ErrorCode::kCorruption,
               {"deepseek4.attention.compress_ratios", "1 elements", "expected 2"});
  expect_error(spec_of(deepseek4({0, 5})), ErrorCode::kUnsupported, {"compress_ratios", "5"});
}

TEST(GgufConfig, UnitsOfAllLayersHaveOneLimit) {
  EXPECT_TRUE(spec_of(deepseek4().f32("deepseek4.swiglu_clamp_shexp", 10.0f)).ok());
  expect_error(spec_of(deepseek4().f32("deepseek4.swiglu_clamp_shexp", 7.0f)),
               ErrorCode::kUnsupported, {"swiglu_clamp_shexp", "10", "7"});
  GgufImage sigmoid = deepseek4();
  std::erase_if(sigmoid.keys, [](const std::string& key) {
    return key.find("expert_gating_func") != std::string::npos;
  });
  expect_error(spec_of(sigmoid.u32("deepseek4.expert_gating_func", 2)), ErrorCode::kUnsupported,
               {"deepseek4.expert_gating_func", "2", "4"});
}

GgufImage mistral4(const std::string& architecture = "mistral4") {
  GgufImage image = model_of(architecture);
  const std::string p = architecture + ".";
  for (const auto& [key, value] :
       {std::pair("attention.q_lora_rank", 64u), std::pair("attention.kv_lora_rank", 64u),
        std::pair("attention.key_length_mla", 48u), std::pair("attention.value_length_mla", 32u),
        std::pair("rope.dimension_count", 16u), std::pair("expert_shared_count", 1u),
        std::pair("rope.scaling.original_context_length", 8192u)}) {
    image.u32(p + key, value);
  }
  image.text(p + "rope.scaling.type", "yarn").f32(p + "rope.scaling.factor", 4.0f);
  image.f32(p + "rope.scaling.yarn_log_multiplier", 0.1f);
  return image;
}

TEST(GgufConfig, QueriesGrowAsTheFileSaysOrAsInThePublishedModel) {
  const auto scale_of = [](const GgufImage& image) {
    const auto spec = spec_of(image);
    EXPECT_TRUE(spec.ok()) << spec.error().to_string();
    if (!spec.ok()) return QueryScale{};
    EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
    return dynamic_cast<const LatentAttentionSpec&>(*spec->layers[0].mixer).rope.query_scale;
  };
  EXPECT_DOUBLE_EQ(scale_of(mistral4()).beta, 0.1);
  EXPECT_EQ(scale_of(mistral4()).period, 8192);
  const GgufImage own = mistral4().f32("mistral4.attention.temperature_scale", 0.5f);
  EXPECT_DOUBLE_EQ(scale_of(own).beta, 0.5);
  EXPECT_EQ(scale_of(mistral4().u32("mistral4.attention.temperature_length", 8192)).period, 8192);
  expect_error(spec_of(mistral4().u32("mistral4.attention.temperature_length", 4096)),
               ErrorCode::kUnsupported, {"mistral4.attention.temperature_length", "4096", "8192"});
  GgufImage named = mistral4("deepseek2");
  EXPECT_EQ(spec_of(named)->model_type, "deepseek_v2");
  named.f32("deepseek2.attention.temperature_scale", 0.5f);
  EXPECT_DOUBLE_EQ(scale_of(named).beta, 0.5);
  EXPECT_EQ(spec_of(named)->model_type, "mistral4");
  expect_error(spec_of(named.u32("deepseek2.expert_gating_func", 2)), ErrorCode::kUnsupported,
               {"deepseek2.expert_gating_func", "2", "1"});
}

TEST(GgufConfig, Mistral4IsReadOnlyAsItIsComputed) {
  GgufImage plain = mistral4();
  std::erase_if(plain.keys, [](const std::string& key) {
    return key.find("rope.scaling.type") != std::string::npos;
  });
  expect_error(spec_of(plain), ErrorCode::kUnsupported,
               {"mistral4.rope.scaling.type", "none", "yarn"});
  expect_error(spec_of(plain.text("mistral4.rope.scaling.type", "linear")), ErrorCode::kUnsupported,
               {"mistral4.rope.scaling.type", "linear", "yarn"});
  expect_error(spec_of(mistral4().f32("mistral4.rope.scaling.attn_factor", 0.5f)),
               ErrorCode::kUnsupported, {"mistral4.rope.scaling.attn_factor", "0.5"});
  expect_error(spec_of(mistral4().u32("mistral4.expert_gating_func", 2)), ErrorCode::kUnsupported,
               {"mistral4.expert_gating_func", "2", "1"});
  expect_error(spec_of(mistral4().u32("mistral4.expert_group_count", 2)), ErrorCode::kUnsupported,
               {"n_group", "2"});
}

/// MiMo-V2 with one predicting block behind its three layers, of which the first has no experts.
GgufImage mimo2(std::initializer_list<uint32_t> kv_heads = {2, 4, 2, 4}) {
  GgufImage image = model_of("mimo2", 4);
  for (const auto& [key, value] :
       {std::pair("nextn_predict_layers", 1u), std::pair("attention.key_length", 48u),
        std::pair("attention.value_length", 32u), std::pair("attention.sliding_window", 16u),
        std::pair("rope.dimension_count", 16u), std::pair("expert_gating_func", 2u)}) {
    image.u32(std::string("mimo2.") + key, value);
  }
  image.key("mimo2.attention.head_count_kv", kArray, array_of(kv_heads));
  image.key("mimo2.attention.sliding_window_pattern", kArray, array_of({0, 1, 0, 1}));
  image.f32("mimo2.attention.value_scale", 0.707f);
  image.tensor("blk.1.ffn_gate_inp.weight", {64, 8}, kF32, 0);
  image.tensor("blk.2.ffn_gate_inp.weight", {64, 8}, kF32, 2048);
  return image;
}

TEST(GgufConfig, BlocksOfMimoWithoutARouterAreDense) {
  const auto spec = spec_of(mimo2().zeros(4096));
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  ASSERT_EQ(spec->num_layers(), 3);
  EXPECT_EQ(spec->layers[0].dense_intermediate_size, 128);
  EXPECT_EQ(spec->layers[0].moe.num_experts, 0);
  EXPECT_EQ(spec->layers[1].moe.num_experts, 8);
  EXPECT_EQ(spec->layers[2].moe.num_experts, 8);
  EXPECT_TRUE(spec->layers[1].moe.router.normalize);  // the file does not say so
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  expect_error(spec_of(mimo2({2, 4, 1, 4}).zeros(4096)), ErrorCode::kUnsupported,
               {"head_count_kv has 2 and 1 for blocks without a window"});
  expect_error(spec_of(mimo2().text("mimo2.rope.scaling.type", "yarn").zeros(4096)),
               ErrorCode::kUnsupported, {"mimo2.rope.scaling.type", "yarn", "none"});
}

TEST(GgufConfig, NamesWhatIsWrong) {
  expect_error(config_of(model_of("toy")), ErrorCode::kUnsupported,
               {"m.gguf", "\"toy\"", "qwen3moe", "gpt-oss"});
  expect_error(config_of(model_of("qwen3moe", 0)), ErrorCode::kCorruption,
               {"qwen3moe.block_count", "0", "1 to 1024"});
  expect_error(config_of(model_of("qwen3moe", 1025)), ErrorCode::kCorruption, {"1025"});
  GgufImage without = model_of("qwen3moe");
  without.keys.erase(without.keys.begin() + 2);
  expect_error(config_of(without), ErrorCode::kCorruption,
               {"m.gguf", "qwen3moe.embedding_length", "missing"});
  GgufImage wrong_type = model_of("qwen3moe");
  wrong_type.text("qwen3moe.attention.head_count_kv", "2");
  expect_error(config_of(wrong_type), ErrorCode::kCorruption,
               {"qwen3moe.attention.head_count_kv", "string", "whole number"});
  GgufImage control = model_of("qwen3moe");
  control.text("qwen3moe.rope.scaling.type", "\x1b[2J");
  expect_error(config_of(control), ErrorCode::kCorruption, {"qwen3moe.rope.scaling.type", "ASCII"});
  GgufImage huge = model_of("qwen3moe");
  huge.key("qwen3moe.attention.head_count_kv", 10, GgufBytes().number(INT64_MAX).text());
  expect_error(config_of(huge), ErrorCode::kCorruption,
               {"qwen3moe.attention.head_count_kv", "9223372036854775807", "1073741824"});
  GgufImage dense = model_of("llama");
  dense.keys.erase(dense.keys.begin() + 7);
  expect_error(config_of(dense), ErrorCode::kUnsupported, {"llama.expert_used_count", "2", "0"});
  GgufImage experts = model_of("qwen3moe");
  experts.keys[7] = GgufImage().u32("qwen3moe.expert_count", 5000).keys[0];
  expect_error(config_of(experts), ErrorCode::kUnsupported, {"5000", "4096"});
}

TEST(GgufConfig, KeysThatNobodyKnowsAreNamed) {
  GgufImage image = model_of("qwen3moe");
  image.u32("qwen3moe.attention.strange", 3);
  const auto spec = spec_of(image);
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_EQ(spec->unread_keys, std::vector<std::string>{"qwen3moe.attention.strange"});
}

TEST(GgufTensors, HaveCanonicalNamesAndTheirFormats) {
  GgufImage image = model_of("qwen3moe");
  image.tensor("token_embd.weight", {64, 256}, kQ80, 0);
  image.tensor("blk.1.attn_norm.weight", {64}, kF32, 17408);
  image.tensor("blk.1.ffn_gate_exps.weight", {64, 96, 8}, kQ80, 17664);
  image.tensor("blk.1.strange.weight", {8}, kF32, 69888);
  image.tensor("blk.2.attn_norm.weight", {64}, kF32, 69920);  // of a block beyond the layers
  const auto index = tensors_of(image.zeros(70176));
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_TRUE(index->has_canonical_names());
  const TensorEntry* embedding = index->find("embed_tokens.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, Shape({256, 64}));
  EXPECT_EQ(embedding->type_name(), "q8_0");
  EXPECT_EQ(embedding->size_bytes, 256u * 68);
  EXPECT_EQ(index->find("layers.1.input_layernorm.weight")->dtype, DType::kF32);
  EXPECT_EQ(index->find("layers.1.mlp.switch_mlp.gate_proj.weight")->shape, Shape({8, 96, 64}));
  EXPECT_NE(index->find("blk.1.strange.weight"), nullptr);  // loading will refuse it by its name
  EXPECT_EQ(index->entries().size(), 4u);
}

TEST(GgufTensors, TheFirstBlockThatPredictsIsALayerWhereItIsWanted) {
  GgufImage image = model_of("glm4moe", 3);
  image.u32("glm4moe.nextn_predict_layers", 2);
  image.tensor("blk.0.attn_norm.weight", {64}, kF32, 0);
  image.tensor("blk.1.attn_norm.weight", {64}, kF32, 256);
  image.tensor("blk.1.nextn.eh_proj.weight", {128, 64}, kF32, 512);
  image.tensor("blk.1.nextn.enorm.weight", {64}, kF32, 33280);
  image.tensor("blk.1.nextn.hnorm.weight", {64}, kF32, 33536);
  image.tensor("blk.1.nextn.shared_head_norm.weight", {64}, kF32, 33792);
  image.tensor("blk.1.nextn.shared_head_head.weight", {64}, kF32, 34048);
  image.tensor("blk.2.nextn.enorm.weight", {64}, kF32, 34304);
  image.zeros(34560);
  const auto text = tensors_of(image);
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_EQ(text->entries().size(), 1u);
  auto model = open(image);
  ASSERT_TRUE(model.ok());
  const auto index = gguf_tensors(std::move(model).value(), 1);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  for (const char* name : {"input_layernorm.weight", "eh_proj.weight", "enorm.weight",
                           "hnorm.weight", "shared_head.norm.weight"}) {
    EXPECT_NE(index->find(std::string("layers.1.") + name), nullptr) << name;
  }
  EXPECT_EQ(index->entries().size(), 6u);
}

TEST(GgufTensors, TheBlockOfMimoThatPredictsEndsWithANormOfItsOwn) {
  auto model = open(mimo2().tensor("blk.3.layer_output_norm.weight", {64}, kF32, 4096).zeros(8192));
  ASSERT_TRUE(model.ok());
  const auto index = gguf_tensors(std::move(model).value(), 1);
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  EXPECT_NE(index->find("layers.3.shared_head.norm.weight"), nullptr);
}

TEST(GgufTensors, FusedQueriesKeysAndValuesAreViewsOfTheirRows) {
  GgufImage image = model_of("qwen3moe");
  image.u32("qwen3moe.attention.head_count_kv", 2).u32("qwen3moe.attention.key_length", 16);
  image.tensor("blk.0.attn_qkv.weight", {64, 128}, kQ80, 0);
  const auto index = tensors_of(image.zeros(128 * 68));
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  const TensorEntry* q = index->find("layers.0.self_attn.q_proj.weight");
  const TensorEntry* k = index->find("layers.0.self_attn.k_proj.weight");
  const TensorEntry* v = index->find("layers.0.self_attn.v_proj.weight");
  ASSERT_TRUE(q != nullptr && k != nullptr && v != nullptr);
  EXPECT_EQ(q->shape, Shape({64, 64}));
  EXPECT_EQ(k->shape, Shape({32, 64}));
  EXPECT_EQ(k->offset_bytes, q->offset_bytes + 64 * 68);
  EXPECT_EQ(v->offset_bytes, k->offset_bytes + 32 * 68);
  EXPECT_EQ(v->size_bytes, 32u * 68);
  GgufImage few = model_of("qwen3moe");
  few.tensor("blk.0.attn_qkv.weight", {64, 64}, kQ80, 0);
  expect_error(tensors_of(few.zeros(64 * 68)), ErrorCode::kCorruption,
               {"m.gguf", "blk.0.attn_qkv.weight", "64 rows"});
}

TEST(GgufTensors, FusedRowsOfSlidingLayersAreThoseOfTheirHeads) {
  GgufImage image = mimo2();
  image.tensor("blk.0.attn_qkv.weight", {64, 352}, kQ80, 4096);  // 192 + 2 * (48 + 32)
  image.tensor("blk.1.attn_qkv.weight", {64, 512}, kQ80, 4096 + 352 * 68);
  const auto index = tensors_of(image.zeros(4096 + (352 + 512) * 68));
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  const std::string k = ".self_attn.k_proj.weight";
  const std::string v = ".self_attn.v_proj.weight";
  EXPECT_EQ(index->find("layers.0" + k)->shape, Shape({96, 64}));
  EXPECT_EQ(index->find("layers.0" + v)->shape, Shape({64, 64}));
  EXPECT_EQ(index->find("layers.1" + k)->shape, Shape({192, 64}));
  EXPECT_EQ(index->find("layers.1" + v)->shape, Shape({128, 64}));
}

constexpr uint32_t kU32 = 4;
constexpr uint32_t kU64 = 10;

template <typename T>
std::string numbers_of(uint32_t type, std::initializer_list<T> values) {
  GgufBytes bytes;
  bytes.number(type).template number<uint64_t>(values.size());
  for (const T value : values) bytes.number(value);
  return bytes.text();
}

/// Qwen3.8-Flash-Next with an embedding of n-grams in the first of two layers, without `left_out`.
GgufImage qwen4exp(std::string_view left_out = "", uint32_t type_of_offsets = kU64) {
  GgufImage image = model_of("qwen4exp");
  const std::string p = "qwen4exp.";
  for (const auto& [key, value] :
       {std::pair("attention.key_length", 32u), std::pair("rope.dimension_count", 8u),
        std::pair("expert_shared_feed_forward_length", 64u), std::pair("ssm.conv_kernel", 4u),
        std::pair("ssm.state_size", 32u), std::pair("ssm.group_count", 2u),
        std::pair("ssm.time_step_rank", 4u), std::pair("ssm.inner_size", 128u),
        std::pair("full_attention_interval", 2u), std::pair("hyper_connection.count", 4u),
        std::pair("hyper_connection.low_rank", 32u), std::pair("attention.indexer.head_count", 4u),
        std::pair("attention.indexer.key_length", 32u), std::pair("attention.indexer.top_k", 8u),
        std::pair("ple.ngram_size", 3u), std::pair("ple.heads_per_ngram", 1u),
        std::pair("ple.conv_kernel", 4u), std::pair("ple.eos_token_id", 2u),
        std::pair("embedding_length_per_layer_input", 32u)}) {
    image.u32(p + key, value);
  }
  image.key(p + "attention.compress_ratios", kArray, array_of({0, 4}));
  image.key(p + "ple.layers", kArray, array_of({0}));
  image.key(p + "ple.layer_multipliers", kArray, numbers_of<uint64_t>(kU64, {3, 5, 7}));
  image.key(p + "ple.head_vocab_sizes", kArray, numbers_of<uint64_t>(kU64, {11, 13}));
  image.key(p + "ple.head_offsets", kArray,
            type_of_offsets == kU64 ? numbers_of<uint64_t>(kU64, {0, 11})
                                    : numbers_of<uint32_t>(kU32, {0, 11}));
  std::erase_if(image.keys, [&](const std::string& key) {
    return !left_out.empty() && key.find(left_out) != std::string::npos;
  });
  return image.tensor("per_layer_token_embd.weight", {32, 32}, kQ80, 0).zeros(32 * 34);
}

TEST(GgufTensors, NumbersOfNgramsAreTensorsOfTheirLayer) {
  const auto spec = spec_of(qwen4exp());
  ASSERT_TRUE(spec.ok()) << spec.error().to_string();
  EXPECT_TRUE(spec->unread_keys.empty()) << spec->unread_keys.front();
  EXPECT_EQ(spec->layers[0].ngrams.rows.row_dim(), 32);
  EXPECT_EQ(spec->layers[0].ngrams.rows.boundary, 2);
  const auto index = tensors_of(qwen4exp());
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  const std::string p = "layers.0.ple.ple_embedding.";
  for (const auto& [name, count] :
       {std::pair("layer_multipliers", 3), std::pair("ngram_heads_vocab_sizes", 2),
        std::pair("ngram_heads_offsets", 2)}) {
    const TensorEntry* entry = index->find(p + name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, DType::kI64);
    EXPECT_EQ(entry->shape, Shape({count}));
    std::vector<std::byte> bytes(entry->size_bytes);
    ASSERT_TRUE(index->file(0).read_at(entry->offset_bytes, bytes).ok());
    EXPECT_EQ(static_cast<int>(bytes[8]), count == 3 ? 5 : name[12] == 'v' ? 13 : 11);
  }
  EXPECT_NE(index->find(p + "ngram_embedding.shard_0.weight"), nullptr);
}

TEST(GgufTensors, NgramsWithoutTheirNumbersAreRefused) {
  for (const char* key : {"ple.layer_multipliers", "ple.head_vocab_sizes", "ple.head_offsets"}) {
    expect_error(config_of(qwen4exp(key)), ErrorCode::kCorruption, {"m.gguf", key, "missing"});
  }
  expect_error(tensors_of(qwen4exp("", kU32)), ErrorCode::kCorruption,
               {"qwen4exp.ple.head_offsets", "64 bits"});
  GgufImage two = qwen4exp("ple.layers");
  two.key("qwen4exp.ple.layers", kArray, array_of({0, 1}));
  expect_error(config_of(two), ErrorCode::kUnsupported, {"ple.layers", "2 layers"});
  GgufImage behind = qwen4exp("ple.layers");
  behind.key("qwen4exp.ple.layers", kArray, array_of({2}));
  expect_error(config_of(behind), ErrorCode::kUnsupported, {"ple.layers"});
  GgufImage without = qwen4exp();
  without.tensors.clear();
  expect_error(config_of(without), ErrorCode::kCorruption, {"per_layer_token_embd.weight"});
}

TEST(GgufTensors, TablesOfExpertsAreIds) {
  GgufImage image = deepseek4();
  image.tensor("blk.0.ffn_gate_tid2eid.weight", {2, 256}, kI32, 0);
  image.tensor("blk.0.exp_probs_b.bias", {8}, kF32, 2048);  // decides nothing beside a table
  image.tensor("blk.1.exp_probs_b.bias", {8}, kF32, 2080);
  const auto index = tensors_of(image.zeros(2112));
  ASSERT_TRUE(index.ok()) << index.error().to_string();
  const TensorEntry* table = index->find("layers.0.ffn.gate.tid2eid");
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->dtype, DType::kI32);
  EXPECT_EQ(table->shape, Shape({256, 2}));
  EXPECT_NE(index->find("layers.1.ffn.gate.bias"), nullptr);
  EXPECT_EQ(index->entries().size(), 2u);
}

TEST(GgufTensors, OneMeaningHasOneTensor) {
  GgufImage image = model_of("qwen3moe");
  image.tensor("blk.0.ffn_norm.weight", {64}, kF32, 0);
  image.tensor("blk.0.post_attention_norm.weight", {64}, kF32, 256);
  expect_error(tensors_of(image.zeros(512)), ErrorCode::kCorruption,
               {"m.gguf", "blk.0.post_attention_norm.weight", "post_attention_layernorm"});
}

TEST(GgufArchitectures, EachNameBelongsToOne) {
  std::set<std::string_view> names;
  for (const GgufArchitecture* architecture : gguf_architectures()) {
    EXPECT_FALSE(architecture->names.empty());
    for (const std::string_view name : architecture->names) {
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
  for (const char* name : {"qwen35moe", "qwen3next", "qwen3moe", "qwen2moe", "olmoe", "llama",
                           "deepseek2", "glm4moe", "gpt-oss", "minimax-m2", "gemma4", "mimo2",
                           "lfm2moe", "deepseek4", "qwen4exp", "glm5-next", "mistral4"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

}  // namespace
}  // namespace moeflux
