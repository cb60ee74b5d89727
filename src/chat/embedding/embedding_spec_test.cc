// Pooling, prompts and scores as files of sentence-transformers and keys of GGUF publish them.
#include "chat/embedding/embedding_spec.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "chat/embedding/embedding.h"
#include "tests/support/expect_error.h"
#include "tests/support/golden_families.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;

class EmbeddingSpecTest : public ::testing::Test {
 protected:
  EmbeddingSpecTest() {
    testing::copy_files(testing::golden_folder("qwen3_embedding"), folder_.path());
  }
  void write(const std::string& name, const Json& json) {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    testing::write_bytes(folder_ / name, json.dump());
  }
  void write_modules(const std::vector<std::pair<std::string, std::string>>& types_and_paths) {
    Json modules = Json::array();
    for (const auto& [type, path] : types_and_paths) {
      modules.push_back({{"idx", modules.size()},
                         {"name", std::to_string(modules.size())},
                         {"path", path},
                         {"type", "sentence_transformers.models." + type}});
    }
    write("modules.json", modules);
  }
  Result<EmbeddingSpec> read() const {
    auto source = open_model_source(folder_.path());
    EXPECT_TRUE(source.ok()) << source.error().to_string();
    return read_embedding_spec(**source);
  }

  testing::TempFolder folder_;
};

TEST_F(EmbeddingSpecTest, AModelWithoutSuchFilesPoolsItsLastToken) {
  const auto spec = read();
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->pooling, Pooling::kLast);
  EXPECT_TRUE(spec->normalize);
  EXPECT_TRUE(spec->source.empty());
  EXPECT_FALSE(spec->rerank);
}

TEST_F(EmbeddingSpecTest, ModulesSayPoolingAndNormalisation) {
  const std::vector<std::pair<Json, Pooling>> cases = {
      {{{"word_embedding_dimension", 64}, {"pooling_mode_lasttoken", true}}, Pooling::kLast},
      {{{"pooling_mode_mean_tokens", true}, {"pooling_mode_cls_token", false}}, Pooling::kMean},
      {{{"pooling_mode_cls_token", true}, {"include_prompt", true}}, Pooling::kCls},
      {{{"embedding_dimension", 64}, {"pooling_mode", "mean"}}, Pooling::kMean}};
  for (const bool normalizes : {true, false}) {
    for (const auto& [config, pooling] : cases) {
      write("1_Pooling/config.json", config);
      if (normalizes) {
        write_modules(
            {{"Transformer", ""}, {"Pooling", "1_Pooling"}, {"Normalize", "2_Normalize"}});
      } else {
        write_modules({{"Transformer", ""}, {"Pooling", "1_Pooling"}});
      }
      const auto spec = read();
      ASSERT_TRUE(spec.ok()) << spec.error().to_string();
      EXPECT_EQ(spec->pooling, pooling);
      EXPECT_EQ(spec->normalize, normalizes);
      EXPECT_EQ(spec->source, "modules.json");
    }
  }
}

TEST_F(EmbeddingSpecTest, PromptsAreThoseOfTheConfig) {
  write("config_sentence_transformers.json",
        {{"prompts", {{"query", "Query: "}, {"document", ""}}}, {"default_prompt_name", nullptr}});
  auto spec = read();
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->prompts["query"], "Query: ");
  EXPECT_TRUE(spec->default_prompt.empty());
  write("config_sentence_transformers.json",
        {{"prompts", {{"query", "Query: "}}}, {"default_prompt_name", "query"}});
  EXPECT_EQ(read()->default_prompt, "query");
}

TEST_F(EmbeddingSpecTest, ModulesAndModesThatAreNotComputedAreRefusedByName) {
  write_modules({{"Transformer", ""}, {"Dense", "2_Dense"}});
  expect_error(read(), ErrorCode::kUnsupported, {"modules.json", "Dense", "Normalize"});
  write_modules({{"Transformer", ""}, {"Pooling", "1_Pooling"}});
  expect_error(read(), ErrorCode::kNotFound, {"1_Pooling/config.json"});
  for (const Json& config :
       {Json{{"pooling_mode_max_tokens", true}}, Json::object(),
        Json{{"pooling_mode_mean_tokens", true}, {"pooling_mode_cls_token", true}}}) {
    write("1_Pooling/config.json", config);
    expect_error(read(), ErrorCode::kUnsupported, {"1_Pooling/config.json", "pooling mode"});
  }
  write("1_Pooling/config.json", {{"pooling_mode_mean_tokens", true}, {"include_prompt", false}});
  expect_error(read(), ErrorCode::kUnsupported, {"include_prompt"});
}

TEST_F(EmbeddingSpecTest, HostileFilesLeadNowhere) {
  for (const char* path : {"../outside", "/etc", "a/b", ".", "", "a\\b"}) {
    write_modules({{"Pooling", path}});
    expect_error(read(), ErrorCode::kCorruption, {"modules.json", "path"});
  }
  for (const Json& modules :
       {Json("text"), Json::array({1}), Json::array({{{"type", 1}, {"path", ""}}})}) {
    write("modules.json", modules);
    expect_error(read(), ErrorCode::kCorruption, {"modules.json"});
  }
  std::filesystem::remove(folder_ / "modules.json");
  for (const Json& config : {Json{{"prompts", Json::array({1})}}, Json{{"prompts", {{"a", 1}}}},
                             Json{{"prompts", {{"a", "b"}}}, {"default_prompt_name", "c"}}}) {
    write("config_sentence_transformers.json", config);
    expect_error(read(), ErrorCode::kCorruption, {"config_sentence_transformers.json"});
  }
}

TEST_F(EmbeddingSpecTest, LogitScoreNamesTheTokensOfAReranker) {
  write_modules({{"Transformer", ""}, {"LogitScore", "1_LogitScore"}});
  write("1_LogitScore/config.json", {{"true_token_id", 9693}, {"false_token_id", 2152}});
  const auto spec = read();
  ASSERT_TRUE(spec.ok());
  ASSERT_TRUE(spec->rerank && spec->rerank->answers);
  EXPECT_EQ(spec->rerank->answers->yes, 9693);
  EXPECT_EQ(spec->rerank->answers->no, 2152);
  EXPECT_TRUE(spec->rerank->prompt.empty());
  write("1_LogitScore/config.json", {{"true_token_id", 9454}, {"false_token_id", nullptr}});
  expect_error(read(), ErrorCode::kUnsupported, {"1_LogitScore/config.json", "false_token_id"});
}

TEST(EmbeddingPrompts, StandBeforeTheTextByName) {
  const auto tokenizer = load_tokenizer(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m");
  ASSERT_TRUE(tokenizer.ok());
  const EmbeddingSpec spec{.prompts = {{"query", "Once upon "}}};
  const auto tokens = [&](std::string_view text, std::string_view prompt) {
    return embedding_tokens(*tokenizer, spec, text, prompt);
  };
  EXPECT_EQ(*tokens("a time", "query"), *tokens("Once upon a time", ""));
  expect_error(tokens("a time", "question"), ErrorCode::kInvalidArgument,
               {"prompt_name is \"question\"", "query"});
  EmbeddingSpec by_default = spec;
  by_default.default_prompt = "query";
  EXPECT_EQ(*embedding_tokens(*tokenizer, by_default, "a time"), *tokens("Once upon a time", ""));
}

// As Qwen3-Embedding has it, which pools the token that its template appends.
TEST(EmbeddingTokens, EndWithWhatTheTokenizersTemplateAppends) {
  Json json = Json::parse(
      testing::read_bytes(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m/tokenizer.json"));
  const auto plain = Tokenizer::parse(json.dump(), "plain");
  ASSERT_TRUE(plain.ok());
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "TemplateProcessing",
       "single": [{"Sequence": {"id": "A", "type_id": 0}},
                  {"SpecialToken": {"id": "end", "type_id": 0}}],
       "special_tokens": {"end": {"id": "end", "ids": [7], "tokens": ["end"]}}}]})");
  const auto tokenizer = Tokenizer::parse(json.dump(), "with a template");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().to_string();
  std::vector<TokenId> expected = plain->encode("A fox").value();
  expected.push_back(7);
  EXPECT_EQ(*embedding_tokens(*tokenizer, {}, "A fox"), expected);
  EXPECT_EQ(*embedding_tokens(*tokenizer, {}, ""), std::vector<TokenId>{7});
}

}  // namespace
}  // namespace moeflux
