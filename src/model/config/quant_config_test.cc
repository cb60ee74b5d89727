#include "model/config/quant_config.h"

#include <gtest/gtest.h>

#include "model/config/config.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

Result<QuantConfig> read(const std::string& sections) {
  auto config = Config::parse("{\"model_type\": \"m\"" + sections + "}");
  EXPECT_TRUE(config.ok());
  return QuantConfig::read(*config);
}

void expect_quant(const std::optional<ModuleQuant>& quant, int bits, int group_size) {
  ASSERT_TRUE(quant.has_value());
  EXPECT_EQ(quant->bits, bits);
  EXPECT_EQ(quant->group_size, group_size);
}

TEST(QuantConfig, NoSectionSaysNothing) {
  const auto quant = read("");
  ASSERT_TRUE(quant.ok());
  EXPECT_FALSE(quant->lookup("model.layers.0.mlp.gate").has_value());
}

TEST(QuantConfig, GlobalValuesHoldForEveryModuleWithoutItsOwn) {
  for (const std::string section : {"quantization", "quantization_config"}) {
    const auto quant = read(", \"" + section + R"(": {"bits": 4, "group_size": 64,
        "mode": "affine", "a.gate": {"bits": 8, "group_size": 32}, "a.norm": false,
        "a.head": true})");
    ASSERT_TRUE(quant.ok());
    expect_quant(quant->lookup("a.anything"), 4, 64);
    expect_quant(quant->lookup("a.gate"), 8, 32);
    expect_quant(quant->lookup("a.head"), 4, 64);
    EXPECT_FALSE(quant->lookup("a.norm").has_value());
  }
}

TEST(QuantConfig, QuantizationComesBeforeQuantizationConfig) {
  const auto quant = read(R"(, "quantization": {"bits": 8, "group_size": 32},
                             "quantization_config": {"bits": 4, "group_size": 64})");
  ASSERT_TRUE(quant.ok());
  expect_quant(quant->lookup("x"), 8, 32);
}

TEST(QuantConfig, OtherMethodsAreRefusedByName) {
  for (const std::string method : {"bitsandbytes", "hqq", "torchao", "exl3"}) {
    expect_error(read(R"(, "quantization_config": {"quant_method": ")" + method + "\"}"),
                 ErrorCode::kUnsupported, {"quantization_config", method});
  }
  expect_error(read(R"(, "quantization": {"bits": 4, "group_size": 32, "mode": "nf4"})"),
               ErrorCode::kUnsupported, {"mode", "nf4", "affine"});
}

TEST(QuantConfig, ModesOfMlxHaveTheirOwnBitsAndGroups) {
  const auto quant = read(R"(, "quantization": {"mode": "nvfp4", "a.gate": {"bits": 8},
                             "a.up": {"mode": "mxfp8"}, "a.down": {"mode": "mxfp4", "bits": 4}})");
  ASSERT_TRUE(quant.ok()) << quant.error().to_string();
  EXPECT_EQ(quant->lookup("x")->to_string(), "nvfp4");
  EXPECT_EQ(quant->lookup("a.gate")->to_string(), "affine-8/64");
  EXPECT_EQ(quant->lookup("a.up")->to_string(), "mxfp8");
  EXPECT_EQ(quant->lookup("a.down")->to_string(), "mxfp4");
  EXPECT_EQ(quant->rule().method, "mlx");
  expect_error(read(R"(, "quantization": {"mode": "mxfp4", "group_size": 64})"),
               ErrorCode::kUnsupported, {"mxfp4", "group_size 64"});
}

Result<QuantConfig> read_section(const std::string& section) {
  return read(R"(, "quantization_config": {)" + section + "}");
}
Result<QuantConfig> read_compressed(const std::string& weights, const std::string& more = "",
                                    const std::string& format = "pack-quantized") {
  return read_section(R"("quant_method": "compressed-tensors", "format": ")" + format +
                      R"(", "config_groups": {"group_0": {"weights": {)" + weights + "}}}" + more);
}

TEST(QuantConfig, RulesOfOtherToolsAreRead) {
  const auto fp8 = read_section(R"("quant_method": "fp8", "weight_block_size": [128, 128])");
  ASSERT_TRUE(fp8.ok()) << fp8.error().to_string();
  EXPECT_EQ(fp8->rule().block, (std::vector<int64_t>{128, 128}));
  EXPECT_FALSE(fp8->lookup("x").has_value());
  const auto packed = read_compressed(
      R"("num_bits": 4, "group_size": 32, "symmetric": false, "actorder": "group")");
  ASSERT_TRUE(packed.ok()) << packed.error().to_string();
  ASSERT_EQ(packed->rule().schemes.size(), 1u);
  const WeightScheme& scheme = packed->rule().schemes.front();
  EXPECT_EQ(scheme.format, "pack-quantized");
  EXPECT_EQ(scheme.bits, 4);
  EXPECT_EQ(scheme.group_size, 32);
  EXPECT_FALSE(scheme.symmetric || scheme.is_float);
  EXPECT_TRUE(scheme.has_column_map);
  const auto gptq = read_section(R"("quant_method": "gptq", "bits": 8, "group_size": -1)");
  ASSERT_TRUE(gptq.ok()) << gptq.error().to_string();
  EXPECT_EQ(gptq->rule().bits, 8);
  EXPECT_EQ(gptq->rule().group_size, 0);
  EXPECT_TRUE(gptq->rule().adds_one_to_zeros);
  EXPECT_FALSE(read_section(R"("quant_method": "gptq", "checkpoint_format": "gptq_v2")")
                   ->rule()
                   .adds_one_to_zeros);
  const auto mixed = read_section(
      R"("quant_method": "modelopt", "quantization": {"quant_algo": "MIXED_PRECISION",
         "quantized_layers": {"a": {"quant_algo": "FP8"}, "b": {"quant_algo": "NVFP4"}}})");
  ASSERT_TRUE(mixed.ok()) << mixed.error().to_string();
  EXPECT_TRUE(mixed->rule().has_format("FP8") && mixed->rule().has_format("NVFP4"));
}

TEST(QuantConfig, FormatsHaveOtherNames) {
  const auto fbgemm = read_section(R"("quant_method": "fbgemm_fp8", "activation_scale_ub": 1200)");
  ASSERT_TRUE(fbgemm.ok()) << fbgemm.error().to_string();
  EXPECT_EQ(fbgemm->rule().method, "fp8");
  EXPECT_TRUE(fbgemm->rule().block.empty());
  for (const std::string name : {"W4A16_NVFP4", "FP8_PER_CHANNEL_PER_TOKEN", "MXFP8"}) {
    const auto quant = read_section(R"("quant_method": "modelopt", "quant_algo": ")" + name + "\"");
    EXPECT_TRUE(quant.ok() && quant->rule().has_format(name)) << name;
  }
}

TEST(QuantConfig, AutoRoundNamesWhoseFormatItWrote) {
  const auto rounded = [](const std::string& packing, const std::string& more = "") {
    return read_section(R"("quant_method": "auto-round", "bits": 4, "group_size": 128,)"
                        R"("packing_format": ")" +
                        packing + "\"" + more);
  };
  const auto gptq = rounded("auto_round:auto_gptq");
  ASSERT_TRUE(gptq.ok()) << gptq.error().to_string();
  EXPECT_EQ(gptq->rule().method, "gptq");
  EXPECT_TRUE(gptq->rule().adds_one_to_zeros);
  EXPECT_FALSE(gptq->rule().varies);
  for (const char* packing : {"auto_round", "auto_round:gptqmodel"}) {
    EXPECT_FALSE(rounded(packing)->rule().adds_one_to_zeros);
  }
  EXPECT_EQ(rounded("auto_round:auto_awq")->rule().method, "awq");
  // Before packing_format there was backend.
  const auto old = read_section(R"("quant_method": "intel/auto-round", "bits": 4,
      "group_size": 32, "backend": "auto_round:gptq:exllamav2")");
  EXPECT_TRUE(old.ok() && old->rule().adds_one_to_zeros && old->rule().group_size == 32);
  const auto mixed = rounded("auto_round:auto_gptq", R"(, "extra_config": {
      "a": {"bits": 16}, "b": {"bits": 8, "group_size": 32}, "c": {"group_size": -1}})");
  ASSERT_TRUE(mixed.ok()) << mixed.error().to_string();
  EXPECT_TRUE(mixed->rule().varies);
  EXPECT_EQ(mixed->rule().group_sizes, (std::vector<int>{128, 32, 0}));
  const ErrorCode code = ErrorCode::kUnsupported;
  expect_error(rounded("auto_round:llm_compressor"), code, {"packing_format", "llm_compressor"});
  expect_error(rounded("auto_round:auto_gptq", R"(, "data_type": "mx_fp")"), code,
               {"data_type", "mx_fp"});
  expect_error(rounded("auto_round:auto_gptq", R"(, "extra_config": {"b": {"bits": 2}})"), code,
               {"extra_config: b", "bits 2"});
}

TEST(QuantConfig, QuarkHasTypesOfOneStage) {
  const auto quark = [](const std::string& all, const std::string& layer = "null") {
    return read_section(R"("quant_method": "quark", "global_quant_config": {"weight": )" + all +
                        R"(}, "layer_quant_config": {"*down_proj": {"weight": )" + layer + "}}");
  };
  const std::string fp8 = R"({"dtype": "fp8_e4m3", "qscheme": "per_tensor"})";
  const std::string fp4 = R"({"dtype": "fp4", "qscheme": "per_group", "group_size": 32})";
  const std::string int4 = R"({"dtype": "int4", "qscheme": "per_channel"})";
  for (const std::string& type : {fp8, fp4}) {
    const auto quant = quark(type, fp8);
    ASSERT_TRUE(quant.ok()) << quant.error().to_string();
    EXPECT_EQ(quant->rule().method, "quark");
  }
  const ErrorCode code = ErrorCode::kUnsupported;
  expect_error(quark(int4), code, {"global_quant_config: weight {", "int4", "fp8_e4m3"});
  expect_error(quark(fp8, "[" + fp8 + ", " + int4 + "]"), code,
               {"layer_quant_config: *down_proj: weight [", "fp8_e4m3"});
}

TEST(QuantConfig, EntriesOfQuarkAndAutoRoundAreObjects) {
  const auto expect_refused = [](const std::string& section,
                                 std::initializer_list<std::string_view> parts) {
    expect_error(read_section(section), ErrorCode::kInvalidArgument, parts);
  };
  for (const std::string odd : {"[1]", "\"fp8\"", "7"}) {
    const std::string quark = R"("quant_method": "quark", )";
    expect_refused(quark + R"("global_quant_config": )" + odd, {"global_quant_config", odd});
    expect_refused(quark + R"("layer_quant_config": )" + odd, {"layer_quant_config", odd});
    expect_refused(quark + R"("layer_quant_config": {"down": )" + odd + "}",
                   {"layer_quant_config: down", odd});
    const std::string rounded = R"("quant_method": "auto-round", "extra_config": )";
    expect_refused(rounded + odd, {"extra_config", odd});
    expect_refused(rounded + R"({"down": )" + odd + "}", {"extra_config: down", odd});
  }
}

TEST(QuantConfig, ARefusedWordIsAnExcerptInOneLine) {
  const std::string odd = R"("odd\nand )" + std::string(1000, 'x') + "\"";
  for (const std::string key : {"packing_format", "data_type"}) {
    const auto quant = read_section(R"("quant_method": "auto-round", ")" + key + "\": " + odd);
    expect_error(quant, ErrorCode::kUnsupported, {"config.json", key, "odd"});
    EXPECT_LT(quant.error().message().size(), 300u);
  }
}

TEST(QuantConfig, RoutedExpertsMayHaveATypeOfTheirOwnBesideFp8) {
  const std::string fp8 = R"(, "quantization_config": {"quant_method": "fp8"})";
  const auto with = [&](const std::string& type) {
    return read(fp8 + R"(, "expert_dtype": )" + type);
  };
  EXPECT_EQ(read(fp8)->rule().experts, "");
  EXPECT_EQ(with("null")->rule().experts, "");
  EXPECT_EQ(with("\"fp4\"")->rule().experts, "fp4");
  EXPECT_EQ(with("\"fp8\"")->rule().experts, "fp8");
  for (const std::string type : {"\"int4\"", "4", "[\"fp4\"]"}) {
    expect_error(with(type), ErrorCode::kUnsupported, {"expert_dtype", type, "fp4 and fp8"});
  }
  // Other tools leave the publisher's key where they have stored experts otherwise.
  const auto other = read(R"(, "quantization_config": {"quant_method": "awq", "bits": 4},
                             "expert_dtype": "fp4")");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->rule().experts, "");
}

TEST(QuantConfig, WhatARuleAddsIsRefusedByName) {
  const std::string plain = R"("num_bits": 4, "group_size": 32)";
  const ErrorCode code = ErrorCode::kUnsupported;
  expect_error(read_compressed(plain, R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"),
               code, {"sparsity_config", "sparse-24-bitmask"});
  expect_error(read_compressed(plain, R"(, "transform_config": {"config_groups": {}})"), code,
               {"transform_config"});
  expect_error(read_compressed(plain, "", "marlin-24"), code, {"format", "marlin-24"});
  expect_error(read_compressed(R"("num_bits": 4, "strategy": "token")"), code,
               {"strategy", "token"});
  expect_error(read_compressed(R"("num_bits": 4, "actorder": "odd")"), code, {"actorder", "odd"});
  expect_error(read_section(R"("quant_method": "awq", "version": "GEMV")"), code,
               {"version", "gemv", "gemm"});
  expect_error(read_section(R"("quant_method": "gptq", "bits": 3)"), code, {"bits 3", "4 and 8"});
  expect_error(read_section(R"("quant_method": "gptq", "checkpoint_format": "marlin")"), code,
               {"checkpoint_format", "marlin"});
  expect_error(read_section(R"("quant_method": "fp8", "fmt": "e5m2")"), code, {"fmt", "e5m2"});
  expect_error(read_section(R"("quant_method": "modelopt", "quant_algo": "W4A8_AWQ")"), code,
               {"quant_algo", "W4A8_AWQ"});
  expect_error(read_section(R"("quant_method": "compressed-tensors", "config_groups": [])"),
               ErrorCode::kInvalidArgument, {"config_groups"});
  expect_error(read_section(R"("quant_method": "fp8", "weight_block_size": [128])"),
               ErrorCode::kInvalidArgument, {"weight_block_size"});
}

TEST(QuantConfig, ImpossibleValuesAreNamed) {
  expect_error(read(R"(, "quantization": {"bits": 7, "group_size": 64})"), ErrorCode::kUnsupported,
               {"quantization", "bits 7"});
  expect_error(read(R"(, "quantization": {"bits": 4, "group_size": 48})"), ErrorCode::kUnsupported,
               {"group_size 48"});
  expect_error(read(R"(, "quantization": {"bits": -1})"), ErrorCode::kInvalidArgument,
               {"bits is -1"});
  expect_error(read(R"(, "quantization": {"bits": "four"})"), ErrorCode::kInvalidArgument,
               {"bits", "four"});
  expect_error(read(R"(, "quantization": {"bits": 4, "a.gate": {"bits": 9}})"),
               ErrorCode::kUnsupported, {"a.gate", "bits 9"});
  expect_error(read(R"(, "quantization": {"bits": 4, "a.gate": 8})"), ErrorCode::kInvalidArgument,
               {"a.gate", "8"});
  expect_error(read(R"(, "quantization": [4])"), ErrorCode::kInvalidArgument,
               {"quantization", "object"});
}

}  // namespace
}  // namespace moeflux
