// The end of an answer for OpenAI's clients.
#include "serve/openai/chat_answer.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

AnswerPart answer_of(FinishReason reason) {
  AnswerPart answer{.content = "hi"};
  answer.statistics.reason = reason;
  answer.statistics.prompt_tokens = 5;
  answer.statistics.cached_tokens = 2;
  answer.statistics.generated_tokens = 3;
  return answer;
}

TEST(FinishReasons, AreThoseOfTheProtocol) {
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kStopToken)), "stop");
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kStopString)), "stop");
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kTokensMax)), "length");
  EXPECT_EQ(finish_reason(answer_of(FinishReason::kContextFull)), "length");
  AnswerPart called = answer_of(FinishReason::kStopToken);
  called.complete_calls = 1;
  EXPECT_EQ(finish_reason(called), "tool_calls");
}

TEST(Usage, CountsThePromptOnce) {
  const Json usage =
      usage_json({answer_of(FinishReason::kStopToken), answer_of(FinishReason::kStopToken)});
  EXPECT_EQ(usage["prompt_tokens"], 5);
  EXPECT_EQ(usage["completion_tokens"], 6);
  EXPECT_EQ(usage["total_tokens"], 11);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 2);
}

}  // namespace
}  // namespace moeflux::serve
