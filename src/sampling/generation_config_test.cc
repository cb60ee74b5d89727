// Options that generation_config.json files of real shapes give.
#include "sampling/generation_config.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace moeflux {
namespace {

Json parse(std::string_view text) {
  Result<Json> json = parse_json(text, "test");
  EXPECT_TRUE(json.ok());
  return std::move(json).value();
}

TEST(GenerationConfig, FieldsOverrideDefaults) {
  const auto options = sampler_options_from(parse(
      R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.9, "min_p": null})"));
  ASSERT_TRUE(options.ok());
  EXPECT_FLOAT_EQ(options->temperature, 0.6f);
  EXPECT_EQ(options->top_k, 20);
  EXPECT_FLOAT_EQ(options->top_p, 0.9f);
  EXPECT_FLOAT_EQ(options->min_p, SamplerOptions().min_p);
  EXPECT_EQ(options->repeat_last_n, SamplerOptions().repeat_last_n);
}

TEST(GenerationConfig, NoSamplingMeansGreedy) {
  const auto options = sampler_options_from(parse(R"({"do_sample": false, "temperature": 0.6})"));
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->temperature, 0.0f);
}

TEST(GenerationConfig, ARepetitionPenaltyCoversTheSequence) {
  const auto options = sampler_options_from(parse(R"({"repetition_penalty": 1.05})"));
  ASSERT_TRUE(options.ok());
  EXPECT_FLOAT_EQ(options->repeat_penalty, 1.05f);
  EXPECT_EQ(options->repeat_last_n, -1);
}

TEST(GenerationConfig, WrongTypesAreNamed) {
  for (const char* text :
       {R"({"temperature": "hot"})", R"({"temperature": true})", R"({"temperature": 1e300})"}) {
    const auto options = sampler_options_from(parse(text));
    ASSERT_FALSE(options.ok()) << text;
    EXPECT_NE(options.error().message().find("temperature"), std::string::npos);
  }
  EXPECT_FALSE(sampler_options_from(parse(R"({"top_k": 1.5})")).ok());
  EXPECT_FALSE(sampler_options_from(parse(R"({"top_k": 4294967296})")).ok());
  EXPECT_FALSE(sampler_options_from(parse(R"({"do_sample": 1})")).ok());
}

TEST(GenerationConfig, EosIsOneIdOrAList) {
  EXPECT_EQ(*eos_token_ids_from(parse(R"({"eos_token_id": 7})")), (std::vector<TokenId>{7}));
  EXPECT_EQ(*eos_token_ids_from(parse(R"({"eos_token_id": [7, 3, 7]})")),
            (std::vector<TokenId>{7, 3}));
  EXPECT_TRUE(eos_token_ids_from(parse("{}"))->empty());
  EXPECT_TRUE(eos_token_ids_from(parse(R"({"eos_token_id": null})"))->empty());
  EXPECT_FALSE(eos_token_ids_from(parse(R"({"eos_token_id": [-2]})")).ok());
  EXPECT_FALSE(eos_token_ids_from(parse(R"({"eos_token_id": "</s>"})")).ok());
}

TEST(GenerationConfig, AnEosOfMinusOneIsNone) {
  EXPECT_TRUE(eos_token_ids_from(parse(R"({"eos_token_id": -1})"))->empty());
  EXPECT_TRUE(eos_token_ids_from(parse(R"({"eos_token_id": 4294967295})"))->empty());
  EXPECT_EQ(*eos_token_ids_from(parse(R"({"eos_token_id": [-1, 7, 4294967295]})")),
            (std::vector<TokenId>{7}));
}

}  // namespace
}  // namespace moeflux
