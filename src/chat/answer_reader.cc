#include "chat/answer_reader.h"

#include <utility>

namespace moeflux {

AnswerReader::AnswerReader(const ChatFormat& format, AnswerOptions options)
    : format_(format),
      options_(std::move(options)),
      parser_(format.output(), {.prompt_tail = options_.prompt_tail,
                                .markers = &format.markers(),
                                .tools = options_.tools.get(),
                                .id_seed = options_.id_seed}),
      stop_(options_.stop_strings, options_.includes_stop) {}

AnswerReader::Next AnswerReader::push(TokenId token, std::string_view text,
                                      std::vector<OutputEvent>& events) {
  const bool was_reasoning = parser_.in_reasoning();
  std::vector<OutputEvent> parsed;
  parser_.push(text, token, &parsed);
  if (was_reasoning) ++reasoning_tokens_;
  ++tokens_;
  const size_t before = events.size();
  filter(parsed, events);
  Next next{.stop = stop_.stopped()};
  for (size_t i = before; options_.one_call && i < events.size(); ++i) {
    next.stop = next.stop || events[i].kind == OutputKind::kCallEnd;
  }
  const bool is_over = options_.reasoning_tokens_max >= 0 && parser_.in_reasoning() &&
                       reasoning_tokens_ >= options_.reasoning_tokens_max;
  // Within a character nothing can follow but its end.
  if (is_over && !closed_reasoning_ && !text.empty()) {
    closed_reasoning_ = true;
    next.forced = format_.reasoning_close();
  }
  return next;
}

void AnswerReader::push_stop_token(TokenId token, std::vector<OutputEvent>& events) {
  for (const auto& [text, id] : format_.markers()) {
    if (id != token) continue;
    std::vector<OutputEvent> parsed;
    parser_.push_end(text, token, &parsed);
    return filter(parsed, events);
  }
}

void AnswerReader::finish(std::vector<OutputEvent>& events, FinishReason reason) {
  const bool is_cut = reason == FinishReason::kTokensMax || reason == FinishReason::kContextFull;
  std::vector<OutputEvent> parsed;
  parser_.finish(&parsed, is_cut ? OutputEnd::kCut : OutputEnd::kWhole);
  filter(parsed, events);
  if (!stop_.stopped()) release(events);
}

// Content passes the stop strings. Text that they hold back goes before whatever comes next, which
// shows that no stop string began there.
void AnswerReader::filter(std::vector<OutputEvent>& parsed, std::vector<OutputEvent>& events) {
  for (OutputEvent& event : parsed) {
    if (stop_.stopped()) return;
    if (event.kind == OutputKind::kContent) {
      event.begin -= held_bytes_;
      held_bytes_ = event.end - event.begin;
      const bool is_exempt = tokens_ <= options_.tokens_min;
      event.text = is_exempt ? stop_.push_exempt(event.text) : stop_.push(event.text);
      held_bytes_ -= event.text.size();
      event.end = event.begin + event.text.size();
      held_end_ = event.end + held_bytes_;
      if (!event.text.empty()) events.push_back(std::move(event));
      continue;
    }
    release(events);
    if (event.kind != OutputKind::kMarkup) events.push_back(std::move(event));
  }
}

void AnswerReader::release(std::vector<OutputEvent>& events) {
  OutputEvent held{.kind = OutputKind::kContent, .text = stop_.finish()};
  held.begin = held_end_ - held_bytes_;
  held.end = held_end_;
  held_bytes_ = 0;
  if (!held.text.empty()) events.push_back(std::move(held));
}

}  // namespace moeflux
