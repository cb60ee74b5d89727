// What of an answer is told, and where it ends.
#include "chat/answer_reader.h"

#include <gtest/gtest.h>

#include "chat/model_text.h"
#include "templates/engine_test_util.h"

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
    auto format = ChatFormat::load(**source, *text_->tokenizer, kTemplate);
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
    reader.finish(events);
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
  // What could have begun one is told where the answer ends first.
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

}  // namespace
}  // namespace moeflux
