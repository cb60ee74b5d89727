// Small checkpoints of quantised safetensors against logits that transformers computed from the
// numbers that independent libraries decode out of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/file.h"
#include "model/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_file.h"
#include "tests/support/packed_copy.h"
#include "tests/support/run_model.h"
#include "tests/support/temp_folder.h"

namespace moeflux::testing {
namespace {

const std::string kFormats = tests_directory() + "/golden/formats";

std::vector<std::string> checkpoints() {
  std::vector<std::string> folders;
  for (const char* name : {"fp8_ue8m0",
                           "fp4_deepseek_v4",
                           "fp8_channel",
                           "mxfp8",
                           "nvfp4_modelopt",
                           "nvfp4_ct",
                           "mxfp4_ct",
                           "mlx_mxfp4_gpt_oss",
                           "mlx_lm_deepseek_v3",
                           "mlx_lm_qwen3_next",
                           "ct_int4_zero",
                           "gptq",
                           "gptq_order",
                           "gptq_v2_zero",
                           "awq",
                           "ct_sarvam_moe",
                           "gptq_granitemoeshared",
                           "awq_lfm2_moe",
                           "fp8_static_mistral4",
                           "ct_int8_qwen3_moe"}) {
    folders.push_back(kFormats + "/" + name);
  }
  return folders;
}

struct Run {
  std::string folder;
  std::string device;
};

std::vector<Run> runs() {
  std::vector<Run> all;
  for (const std::string& folder : checkpoints()) {
    for (const std::string& device : and_built_gpus({"reference", "cpu", "emulator"})) {
      all.push_back({folder, device});
    }
  }
  // Affine groups of 32 in memory.
  for (const char* name : {"mlx_lm_deepseek_v3", "ct_int4_zero", "gptq", "awq"}) {
    all.push_back({kFormats + "/" + name, "emulator with matrix units"});
  }
  return all;
}

class QuantisedCheckpoints : public ::testing::TestWithParam<Run> {};

TEST_P(QuantisedCheckpoints, LogitsAgreeAndNothingChangesABit) {
  const auto& [folder, device] = GetParam();
  auto golden = read_golden(folder + "/golden.safetensors");
  ASSERT_TRUE(golden.contains("tokens") && golden.contains("logits"));
  const std::vector<TokenId>& tokens = golden["tokens"].ints;
  // Keys and values of f16 would flip routes of these random models.
  const RunOptions options{.device = device, .cache_type = DType::kF32};
  const RunOutput run = run_model(folder, tokens, options);
  ASSERT_EQ(run.logits.size(), golden["logits"].floats.size());
  for (int64_t i = 0; i < golden["logits"].rows(); ++i) {
    EXPECT_GE(cosine(run.row(i), golden["logits"].row(i)), 0.99999) << "position " << i;
  }
  // Neither chunks, nor an expert cache of one slot, nor a pack changes a bit.
  const auto some = std::span(tokens).first(12);
  const std::vector<float> expected(run.logits.begin(), run.logits.begin() + 12 * run.vocab_size);
  RunOptions in_chunks = options;
  in_chunks.expert_cache_bytes = 0;
  in_chunks.chunks = {7, 1, 4};
  EXPECT_EQ(run_model(folder, some, in_chunks).logits, expected);
  const TempFolder packed;
  const bool has_tiles = device == "cpu";
  expect_packed(folder, packed.path(),
                {.order = has_tiles ? WeightOrder::kTiled : WeightOrder::kRowMajor});
  EXPECT_EQ(run_model(packed.path(), some, options).logits, expected);
}

std::string last_part(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, QuantisedCheckpoints, ::testing::ValuesIn(runs()),
                         [](const auto& test) {
                           return last_part(test.param.folder) + "_" +
                                  test_name_of(test.param.device);
                         });

TEST(QuantisedCheckpoint, ExpertsThatAreNotWhatConfigJsonSaysAreRefused) {
  const std::string folder = kFormats + "/fp4_deepseek_v4";
  const TempFolder other;
  auto text = read_text_file(folder + "/config.json", uint64_t{1} << 24);
  ASSERT_TRUE(text.ok());
  copy_files(folder, other.path());
  const auto device = make_test_device({});
  const auto load_with = [&](const Json& type) {
    Json config = *parse_json(*text, "config.json");
    config["expert_dtype"] = type;
    EXPECT_TRUE(write_text_file(other.path() + "/config.json", config.dump()).ok());
    return load_model(other.path(), *device, WeightLoading::kCheckOnly);
  };
  EXPECT_TRUE(load_with(nullptr).ok());
  expect_error(load_with("fp8"), ErrorCode::kCorruption,
               {"layers.0.ffn.experts.0.w1", "mxfp4", "expert_dtype is fp8"});
  expect_error(load_with("nf4"), ErrorCode::kUnsupported, {"expert_dtype", "nf4", "fp4 and fp8"});
}

// packing_format tells which of the two the tensors are.
TEST(QuantisedCheckpoint, AutoRoundWritesFilesOfOtherTools) {
  const std::vector<TokenId> tokens = {1, 5, 3, 17};
  for (const auto& [name, packing] :
       std::map<std::string, std::string>{{"awq", "auto_round:auto_awq"},
                                          {"gptq", "auto_round:auto_gptq"},
                                          {"gptq_v2_zero", "auto_round"}}) {
    const std::string folder = kFormats + "/" + name;
    const TempFolder other;
    copy_files(folder, other.path());
    Json config = *parse_json(read_bytes(folder + "/config.json"), "config.json");
    const Json& published = config["quantization_config"];
    Json section = {{"quant_method", "auto-round"},
                    {"packing_format", packing},
                    {"data_type", "int"},
                    {"bits", published["bits"]},
                    {"group_size", published["group_size"]}};
    section["extra_config"]["model.layers.0.mlp.gate"] = {{"bits", 16}};
    config["quantization_config"] = section;
    ASSERT_TRUE(write_text_file(other.path() + "/config.json", config.dump()).ok());
    EXPECT_EQ(run_model(other.path(), tokens, {}).logits, run_model(folder, tokens, {}).logits)
        << name;
  }
}

// compressed-tensors' weight_packed is its weight.
TEST(QuantisedCheckpoint, QuarkHasAnotherNameForPairsOfFloats) {
  const std::vector<TokenId> tokens = {1, 5, 3, 17};
  const std::string folder = kFormats + "/mxfp4_ct";
  const TempFolder other;
  copy_files(folder, other.path());
  std::string weights = read_bytes(folder + "/model.safetensors");
  const std::string theirs = "weight_packed\"";
  const std::string own = "weight\"       ";  // as long, so that all offsets stay
  for (size_t at = weights.find(theirs); at != std::string::npos; at = weights.find(theirs, at)) {
    weights.replace(at, theirs.size(), own);
  }
  ASSERT_TRUE(write_text_file(other.path() + "/model.safetensors", weights).ok());
  Json config = *parse_json(read_bytes(folder + "/config.json"), "config.json");
  config["quantization_config"] = {
      {"quant_method", "quark"},
      {"global_quant_config",
       {{"weight", {{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 32}}}}}};
  ASSERT_TRUE(write_text_file(other.path() + "/config.json", config.dump()).ok());
  EXPECT_EQ(run_model(other.path(), tokens, {}).logits, run_model(folder, tokens, {}).logits);
}

TEST(QuantisedCheckpoint, RuleOfModelOptimizerMayStandInAFileOfItsOwn) {
  const std::string folder = kFormats + "/nvfp4_modelopt";
  const std::vector<TokenId> tokens = {1, 5, 3, 17};
  const TempFolder other;
  for (const char* name : {"model.safetensors", "hf_quant_config.json", "config.json"}) {
    auto text = read_text_file(folder + "/" + name, uint64_t{1} << 24);
    ASSERT_TRUE(text.ok());
    if (std::string(name) == "config.json") {
      Json config = *parse_json(*text, name);
      ASSERT_EQ(config.erase("quantization_config"), 1u);
      *text = config.dump();
    }
    ASSERT_TRUE(write_text_file(other.path() + "/" + name, *text).ok());
  }
  const std::vector<float> expected = run_model(folder, tokens, {}).logits;
  EXPECT_EQ(run_model(other.path(), tokens, {}).logits, expected);
  ASSERT_TRUE(write_text_file(other.path() + "/hf_quant_config.json",
                              R"({"quantization": {"quant_algo": "W4A8_AWQ"}})")
                  .ok());
  const auto device = make_test_device({});
  const auto refused = load_model(other.path(), *device, WeightLoading::kCheckOnly);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("W4A8_AWQ"), std::string::npos);
}

}  // namespace
}  // namespace moeflux::testing
