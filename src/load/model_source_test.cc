#include "load/model_source.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::TempFolder;

void put(const TempFolder& folder, const std::string& name, std::string_view text) {
  std::ofstream(folder / name) << text;
}

std::unique_ptr<ModelSource> open(const TempFolder& folder) {
  auto source = open_model_source(folder.path());
  EXPECT_TRUE(source.ok());
  return std::move(source).value();
}

TEST(ModelSource, AFolderGivesItsConfigAndTensors) {
  const TempFolder folder;
  testing::make_tiny_model({}).write(folder.path());
  const auto source = open(folder);
  EXPECT_EQ(source->path(), folder.path());
  const auto config = source->config();
  ASSERT_TRUE(config.ok());
  EXPECT_NE(config->find("model_type"), std::string::npos);
  const auto holds = source->holds_tensors();
  EXPECT_TRUE(holds.ok() && *holds);
  const auto tensors = source->tensors();
  ASSERT_TRUE(tensors.ok());
  EXPECT_FALSE(tensors->entries().empty());
}

TEST(ModelSource, SaysWhatAFolderDoesNotHave) {
  const TempFolder folder;
  put(folder, "config.json", "{}");
  const auto source = open(folder);
  const auto holds = source->holds_tensors();
  EXPECT_TRUE(holds.ok() && !*holds);
  expect_error(source->tokenizer(), ErrorCode::kNotFound,
               {"tokenizer.json", "tiktoken.model", "tokenizer.model"});
  const auto generation = source->generation_config();
  EXPECT_TRUE(generation.ok() && !generation->has_value());
  const auto chat = source->chat_templates();
  EXPECT_TRUE(chat.ok() && !chat->text && chat->named.empty());
  expect_error(open_model_source(folder / "nowhere"), ErrorCode::kNotFound, {"no such folder"});
}

TEST(ModelSource, PrefersTokenizerJsonToRanksAndRanksToPieces) {
  const TempFolder folder;
  put(folder, "tokenizer.model", "pieces");
  auto tokenizer = open(folder)->tokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->kind, TokenizerText::Kind::kSentencePiece);
  EXPECT_EQ(tokenizer->text, "pieces");
  EXPECT_EQ(tokenizer->config, "");
  put(folder, "tokenizer_config.json", "{}");
  EXPECT_EQ(open(folder)->tokenizer()->config, "{}");
  put(folder, "tiktoken.model", "ranks");
  tokenizer = open(folder)->tokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->kind, TokenizerText::Kind::kTiktoken);
  EXPECT_EQ(tokenizer->text, "ranks");
  EXPECT_EQ(tokenizer->config, "{}");
  put(folder, "tokenizer.json", "json");
  tokenizer = open(folder)->tokenizer();
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->kind, TokenizerText::Kind::kJson);
  EXPECT_EQ(tokenizer->text, "json");
}

TEST(ModelSource, FindsChatTemplatesInTheFirstPlaceThatHasOne) {
  const TempFolder folder;
  put(folder, "chat_template.json", R"({"chat_template": "of a processor"})");
  EXPECT_EQ(open(folder)->chat_templates()->text, "of a processor");
  put(folder, "tokenizer_config.json", R"({"chat_template": "inner"})");
  EXPECT_EQ(open(folder)->chat_templates()->text, "inner");
  put(folder, "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "a"},
                            {"name": "tool_use", "template": "b"}]})");
  auto chat = open(folder)->chat_templates();
  ASSERT_TRUE(chat.ok());
  EXPECT_FALSE(chat->text);
  EXPECT_EQ(chat->named.at("default"), "a");
  EXPECT_EQ(chat->named.at("tool_use"), "b");
  put(folder, "chat_template.jinja", "own file");
  chat = open(folder)->chat_templates();
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->text, "own file");
  EXPECT_TRUE(chat->named.empty());
}

TEST(ModelSource, RefusesAChatTemplateThatIsNeitherTextNorList) {
  const TempFolder folder;
  put(folder, "tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  expect_error(open(folder)->chat_templates(), ErrorCode::kCorruption,
               {"tokenizer_config.json", "chat_template"});
}

TEST(ModelSource, ReadsGenerationConfig) {
  const TempFolder folder;
  put(folder, "generation_config.json", R"({"top_k": 3})");
  const auto generation = open(folder)->generation_config();
  ASSERT_TRUE(generation.ok());
  EXPECT_EQ(*generation, R"({"top_k": 3})");
}

}  // namespace
}  // namespace moeflux
