// Where a model's special tokens and chat template are found.
#include "chat/model_template.h"

#include <gtest/gtest.h>

#include "templates/engine_test_util.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::TempFolder;
using testing::without_engine;
using testing::write_bytes;

TEST(ModelTemplate, TokensHaveTwoSpellingsAndTwoFiles) {
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "tokenizer_config.json",
              R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "pad_token": null})");
  write_bytes(folder / "special_tokens_map.json", R"({"eos_token": "other", "unk_token": "<u>"})");
  const auto source = open_model_source(folder.path());
  ASSERT_TRUE(source.ok());
  const auto tokens = load_special_tokens(**source);
  ASSERT_TRUE(tokens.ok());
  const Json expected = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<u>"}};
  EXPECT_EQ(*tokens, expected);
}

TEST(ModelTemplate, AFolderWithoutOneSaysSo) {
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  const auto source = open_model_source(folder.path());
  ASSERT_TRUE(source.ok());
  expect_error(load_chat_template(**source, nullptr), ErrorCode::kNotFound, {"chat template"});
}

TEST(ModelTemplate, AGivenTextTakesThePlaceOfTheModelsOwn) {
  if (without_engine()) return;
  const TempFolder folder;
  write_bytes(folder / "config.json", "{}");
  write_bytes(folder / "chat_template.jinja", "own");
  const auto source = open_model_source(folder.path());
  ASSERT_TRUE(source.ok());
  const TemplateRequest request{.messages = Json::array()};
  EXPECT_EQ(load_chat_template(**source, nullptr)->render(request, {})->text, "own");
  EXPECT_EQ(
      load_chat_template(**source, nullptr, GivenTemplate{"given"})->render(request, {})->text,
      "given");
}

TEST(ModelTemplate, WhatDoesNotCompileIsNamedWithFileAndLine) {
  if (without_engine()) return;
  const TempFolder folder;
  constexpr const char* kBroken = "one\n{% for m in %}";
  write_bytes(folder / "config.json", "{}");
  const auto source = open_model_source(folder.path());
  ASSERT_TRUE(source.ok());
  write_bytes(folder / "tokenizer_config.json",
              Json{{"chat_template",
                    {{{"name", "default"}, {"template", "x"}},
                     {{"name", "tool_use"}, {"template", kBroken}}}}}
                  .dump());
  expect_error(load_chat_template(**source, nullptr), ErrorCode::kInvalidArgument,
               {"tokenizer_config.json: chat_template tool_use, line 2"});
  write_bytes(folder / "tokenizer_config.json", Json{{"chat_template", kBroken}}.dump());
  expect_error(load_chat_template(**source, nullptr), ErrorCode::kInvalidArgument,
               {"tokenizer_config.json: chat_template, line 2"});
  write_bytes(folder / "chat_template.jinja", kBroken);
  expect_error(load_chat_template(**source, nullptr), ErrorCode::kInvalidArgument,
               {"chat_template.jinja, line 2"});
  expect_error(load_chat_template(**source, nullptr, GivenTemplate{kBroken, "mine.jinja"}),
               ErrorCode::kInvalidArgument, {"mine.jinja, line 2"});
  const Result<ChatTemplate> given = load_chat_template(**source, nullptr, GivenTemplate{kBroken});
  expect_error(given, ErrorCode::kInvalidArgument, {"the chat template that was given, line 2"});
  EXPECT_EQ(given.error().message().find(folder.path()), std::string::npos);
}

}  // namespace
}  // namespace moeflux
