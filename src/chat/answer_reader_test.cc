// Checks which parts of an answer are reported, and where it ends.
#include "chat/answer_reader.h"

#include <gtest/gtest.h>

#include "chat/model_text.h"
#include "io/file.h"
#include "output/output_message_test_util.h"
#include "templates/engine_test_util.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
    "{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n"
    "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class AnswerReaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::without_engine()) return;
    const std::string fable = std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m";
    text_ = std::move(load_model_text(fable)).value();
    const auto source = open_model_source(fable);
    auto format = ChatFormat::load(**source, *text_->tokenizer, GivenTemplate{kTemplate});
    ASSERT_TRUE(format.ok()) << format.error().message();
    format_ = std::move(format).value();
  }

  struct Told {
    std::string content;
    std::string reasoning;
    int calls = 0;
    size_t tokens = 0;  // until it ended
    size_t all_tokens = 0;
    std::vector<TokenId> forced;
  };
  /// Pushes a text token by token, as a model draws them.
  Told tell(AnswerOptions options, const std::string& text) {
    AnswerReader reader(*format_, std::move(options));
    Told told;
    std::vector<OutputEvent> events;
    const auto tokens = text_->tokenizer->encode(text);
    EXPECT_TRUE(tokens.ok());
    for (const TokenId token : *tokens) {
      ++told.tokens;
      AnswerReader::Next next = reader.push(token, text_->tokenizer->token_text(token), events);
      if (!next.forced.empty()) told.forced = std::move(next.forced);
      if (next.stop) break;
    }
    told.all_tokens = tokens->size();
    reader.finish(events, FinishReason::kStopToken);
    for (const OutputEvent& event : events) {
      EXPECT_NE(event.kind, OutputKind::kMarkup);
      if (event.kind == OutputKind::kContent) told.content += event.text;
      if (event.kind == OutputKind::kReasoning) told.reasoning += event.text;
    }
    told.calls = reader.complete_calls();
    return told;
  }

  std::optional<ModelText> text_;
  std::shared_ptr<const ChatFormat> format_;
};

TEST_F(AnswerReaderTest, ThePromptEndsWithWhatAnAnswerContinues) {
  if (!format_) return;
  const auto prompt = format_->prompt(
      {.messages = Json::array({{{"role", "user"}, {"content", "hi"}}})}, TemplateTime());
  ASSERT_TRUE(prompt.ok()) << prompt.error().message();
  EXPECT_EQ(prompt->text, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prompt->tail, "<|im_start|>assistant\n");
  EXPECT_EQ(*text_->tokenizer->encode(prompt->text), prompt->tokens);
}

TEST_F(AnswerReaderTest, AStopStringEndsContentBeforeIt) {
  if (!format_) return;
  const AnswerOptions options{.stop_strings = {"END", "never"}};
  const Told told = tell(options, "one EN two END three");
  EXPECT_EQ(told.content, "one EN two ");
  EXPECT_LT(told.tokens, told.all_tokens);
  // A possible beginning of one is reported where the answer ends first.
  EXPECT_EQ(tell(options, "one EN").content, "one EN");
}

TEST_F(AnswerReaderTest, AStopStringCountsInContentAlone) {
  if (!format_) return;
  const Told told =
      tell({.stop_strings = {"END"}}, "<think>\nthe END is near\n</think>\n\nyes END no");
  EXPECT_EQ(told.reasoning, "the END is near");
  EXPECT_EQ(told.content, "yes ");
}

TEST_F(AnswerReaderTest, OneCallIsEnoughWhereOneWasAskedFor) {
  if (!format_) return;
  const std::string call =
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": 1}}\n</tool_call>";
  EXPECT_EQ(tell({}, call + "\n" + call).calls, 2);
  const Told one = tell({.one_call = true}, call + "\n" + call);
  EXPECT_EQ(one.calls, 1);
  EXPECT_LT(one.tokens, one.all_tokens * 2 / 3);
}

TEST_F(AnswerReaderTest, ReasoningIsClosedWhenItGoesOnForTooLong) {
  if (!format_) return;
  const std::string text = "<think>\none two three four five six seven";
  EXPECT_TRUE(tell({}, text).forced.empty());
  const Told told = tell({.reasoning_tokens_max = 2}, text);
  ASSERT_FALSE(told.forced.empty());
  EXPECT_EQ(text_->tokenizer->decode(told.forced), "\n</think>\n\n");
  // Not in content, however long.
  EXPECT_TRUE(tell({.reasoning_tokens_max = 2}, "one two three four five").forced.empty());
}

// gpt-oss ends in the middle of a call's JSON.
TEST(AnswerReaderOfChannels, TheEndTokenIsNoPartOfACallsArguments) {
  if (testing::without_engine()) return;
  const std::string golden = std::string(MOEFLUX_SOURCE_DIR) + "/tests/golden/tokenizer/";
  const auto text = read_text_file(golden + "letters.tokenizer.json", uint64_t{1} << 20);
  ASSERT_TRUE(text.ok());
  Json json = Json::parse(*text);
  json["added_tokens"] = Json::array();
  int id = 246;
  for (const char* marker : {"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "<|end|>"}) {
    json["added_tokens"].push_back({{"id", id++},
                                    {"content", marker},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  }
  const auto tokenizer = Tokenizer::parse(json.dump(), "channels");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto source = open_model_source(std::string(MOEFLUX_SOURCE_DIR) + "/models/fable-20m");
  const auto format = ChatFormat::load(
      **source, *tokenizer,
      GivenTemplate{
          "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}"
          "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"});
  ASSERT_TRUE(format.ok()) << format.error().message();
  ASSERT_EQ((*format)->output().name, "channels");
  AnswerReader reader(**format, {.prompt_tail = "<|start|>assistant"});
  std::vector<OutputEvent> events;
  const auto tokens =
      tokenizer->encode("<|channel|>commentary to=functions.get_weather<|message|>{\"city\": \"Ro");
  ASSERT_TRUE(tokens.ok());
  for (const TokenId token : *tokens) reader.push(token, tokenizer->token_text(token), events);
  reader.push_stop_token(249, events);
  reader.finish(events, FinishReason::kStopToken);
  OutputMessage message;
  message.add(events);
  EXPECT_EQ(message.content, "");
  ASSERT_EQ(message.calls.size(), 1u);
  EXPECT_EQ(message.calls[0].name, "get_weather");
  EXPECT_EQ(message.calls[0].arguments, R"({"city": "Ro)");
  EXPECT_FALSE(message.calls[0].complete);
}

TEST_F(AnswerReaderTest, AResponseTemplateIsPreferredWhereARowCanSayIt) {
  if (!format_) return;
  const testing::TempFolder folder;
  testing::write_bytes(folder / "config.json", "{}");
  const auto chosen = [&](const char* config) {
    testing::write_bytes(folder / "tokenizer_config.json", config);
    const auto source = open_model_source(folder.path());
    const auto format = ChatFormat::load(**source, *text_->tokenizer, GivenTemplate{kTemplate});
    return format.ok() ? (*format)->output().name : format.error().message();
  };
  EXPECT_EQ(chosen(R"({"response_template": {"fields": {"content": {}}}})"), "response_template");
  for (const char* config : {"{}", "[]", "7", R"({"response_template": null})",
                             R"({"response_template": {"fields": 1}})"}) {
    EXPECT_EQ(chosen(config), format_->output().name) << config;
  }
}

TEST_F(AnswerReaderTest, AContinuedMessageIsTheTail) {
  if (!format_) return;
  TemplateRequest request{.add_generation_prompt = false, .continue_final_message = true};
  request.messages = Json::array({{{"role", "user"}, {"content", "hi"}},
                                  {{"role", "assistant"}, {"content", "Monday, Tues"}}});
  const auto prompt = format_->prompt(request, TemplateTime());
  ASSERT_TRUE(prompt.ok()) << prompt.error().message();
  EXPECT_EQ(prompt->tail, "<|im_start|>assistant\nMonday, Tues");
  EXPECT_EQ(tell({.prompt_tail = prompt->tail}, "day").content, "day");
  request.messages[1] = {{"role", "assistant"}, {"content", ""}, {"reasoning_content", "Hm"}};
  const auto thinking = format_->prompt(request, TemplateTime());
  ASSERT_TRUE(thinking.ok()) << thinking.error().message();
  EXPECT_TRUE(thinking->text.ends_with("<think>\nHm"));
  const Told told = tell({.prompt_tail = thinking->tail}, " so\n</think>\n\nyes");
  EXPECT_EQ(told.reasoning, " so");
  EXPECT_EQ(told.content, "yes");
}

}  // namespace
}  // namespace moeflux
