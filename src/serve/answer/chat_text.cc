#include "serve/answer/chat_text.h"

#include <utility>

namespace moeflux::serve {

ChatText::ChatText(std::shared_ptr<const ChatFormat> format, AnswerOptions options,
                   std::shared_ptr<Choices> choices, size_t choice)
    : ChoiceReceiver(std::move(choices), choice),
      format_(std::move(format)),
      reader_(*format_, std::move(options)) {}

Verdict ChatText::on_token(const DrawnToken& token) {
  answer_.tokens.push_back(token.token);
  const uint64_t begin = generated_bytes_;
  generated_bytes_ += token.text.size();
  if (token.logprobs != nullptr) {
    pending_.push_back({begin, generated_bytes_, {token.token, *token.logprobs}});
  }
  std::vector<OutputEvent> events;
  if (token.is_stop) {
    if (!token.text.empty()) reader_.push(-1, token.text, events);
    reader_.push_stop_token(token.token, events);
    return {.park = tell_all(events)};
  }
  AnswerReader::Next next = reader_.push(token.token, token.text, events);
  return {.stop = next.stop, .park = tell_all(events), .forced = std::move(next.forced)};
}

void ChatText::on_done(const TextStatistics& statistics) {
  std::vector<OutputEvent> events;
  reader_.finish(events, statistics.reason);
  tell_all(events);
  answer_.complete_calls = reader_.complete_calls();
  answer_.reasoning_tokens = reader_.reasoning_tokens();
  answer_.stopped_by = reader_.stopped_by();
  end(std::move(answer_), statistics);
}

bool ChatText::tell_all(std::vector<OutputEvent>& events) {
  bool park = false;
  for (OutputEvent& event : events) {
    AnswerDelta delta{.kind = event.kind, .call = event.call, .complete = event.complete};
    collect(event, delta);
    delta.text = std::move(event.text);
    delta.id = std::move(event.id);
    park = tell(std::move(delta)) || park;
  }
  return park;
}

void ChatText::collect(const OutputEvent& event, AnswerDelta& delta) {
  // Scores of what came before belong to other kinds of text.
  std::erase_if(pending_, [&](const Pending& token) {
    return token.end <= event.begin && token.end > token.begin;
  });
  switch (event.kind) {
    case OutputKind::kReasoning:
      answer_.reasoning += event.text;
      break;
    case OutputKind::kContent: {
      answer_.content += event.text;
      size_t told = 0;
      while (told < pending_.size() && pending_[told].begin < event.end) {
        delta.scores.push_back(pending_[told].score);
        answer_.scores.push_back(std::move(pending_[told].score));
        ++told;
      }
      pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(told));
      break;
    }
    case OutputKind::kCallBegin:
      answer_.calls.push_back({.id = event.id, .name = event.text});
      break;
    case OutputKind::kCallArguments:
      answer_.calls.back().arguments += event.text;
      break;
    case OutputKind::kCallEnd:
      answer_.calls.back().complete = event.complete;
      break;
    case OutputKind::kMarkup:
      break;
  }
}

}  // namespace moeflux::serve
