// An answer as the parser tells it, by script: for transcripts of encoders.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "serve/answer/answer_encoder.h"

namespace moeflux::serve::script {

inline AnswerDelta reasoning(std::string text) {
  return {.kind = OutputKind::kReasoning, .text = std::move(text)};
}
inline AnswerDelta content(std::string text) {
  return {.kind = OutputKind::kContent, .text = std::move(text)};
}
inline AnswerDelta call_begin(int call, std::string id, std::string name) {
  return {
      .kind = OutputKind::kCallBegin, .call = call, .text = std::move(name), .id = std::move(id)};
}
inline AnswerDelta call_arguments(int call, std::string text) {
  return {.kind = OutputKind::kCallArguments, .call = call, .text = std::move(text)};
}
inline AnswerDelta call_end(int call, bool complete = true) {
  return {.kind = OutputKind::kCallEnd, .call = call, .complete = complete};
}

/// Thinks, says something and calls a tool.
inline std::vector<AnswerDelta> thinking_and_calling() {
  return {reasoning("Let me "),
          reasoning("look."),
          content("I look"),
          content(" it up."),
          call_begin(0, "call_1", "look"),
          call_arguments(0, "{\"place\":"),
          call_arguments(0, "\"hill\"}"),
          call_end(0)};
}

/// The text of all of `deltas`, as ChatText would collect it.
inline AnswerPart answer_of(const std::vector<AnswerDelta>& deltas,
                            FinishReason reason = FinishReason::kStopToken) {
  AnswerPart answer;
  for (const AnswerDelta& delta : deltas) {
    switch (delta.kind) {
      case OutputKind::kReasoning:
        answer.reasoning += delta.text;
        break;
      case OutputKind::kContent:
        answer.content += delta.text;
        break;
      case OutputKind::kCallBegin:
        answer.calls.push_back({.id = delta.id, .name = delta.text, .arguments = {}});
        break;
      case OutputKind::kCallArguments:
        answer.calls.back().arguments += delta.text;
        break;
      case OutputKind::kCallEnd:
        answer.complete_calls += delta.complete ? 1 : 0;
        break;
      case OutputKind::kMarkup:
        break;
    }
  }
  answer.reasoning_tokens = answer.reasoning.empty() ? 0 : 4;
  answer.statistics.reason = reason;
  answer.statistics.prompt_tokens = 30;
  answer.statistics.cached_tokens = 20;
  answer.statistics.generated_tokens = 12;
  answer.statistics.prefill_seconds = 0.5;
  answer.statistics.decode_seconds = 0.25;
  return answer;
}

/// The whole stream.
inline std::string stream_of(AnswerEncoder& encoder, const std::vector<AnswerDelta>& deltas,
                             const AnswerPart& answer) {
  std::string stream = encoder.begin();
  for (const AnswerDelta& delta : deltas) stream += encoder.delta(delta);
  return stream + encoder.end(answer);
}

}  // namespace moeflux::serve::script
