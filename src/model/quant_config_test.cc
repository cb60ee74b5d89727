#include "model/quant_config.h"

#include <gtest/gtest.h>

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
  for (const std::string method : {"fp8", "awq", "nvfp4", "gptq"}) {
    expect_error(read(R"(, "quantization_config": {"quant_method": ")" + method + "\"}"),
                 ErrorCode::kUnsupported, {"quantization_config", method});
  }
  expect_error(read(R"(, "quantization": {"bits": 4, "group_size": 32, "mode": "nvfp4"})"),
               ErrorCode::kUnsupported, {"mode", "nvfp4", "affine"});
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
