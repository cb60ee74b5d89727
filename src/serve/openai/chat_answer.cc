#include "serve/openai/chat_answer.h"

#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

Json message_json(const AnswerPart& answer) {
  Json message = {{"role", "assistant"}, {"content", answer.content}, {"refusal", nullptr}};
  if (answer.content.empty() && !answer.calls.empty()) message["content"] = nullptr;
  if (!answer.reasoning.empty()) {
    message["reasoning_content"] = answer.reasoning;
    message["reasoning"] = answer.reasoning;
  }
  if (!answer.calls.empty()) message["tool_calls"] = chat_calls(answer.calls);
  return message;
}

Json call_delta(Json call) { return {{"tool_calls", Json::array({std::move(call)})}}; }

/// Null for what no client is told of.
Json delta_json(const AnswerDelta& delta) {
  switch (delta.kind) {
    case OutputKind::kReasoning:
      return {{"reasoning_content", delta.text}, {"reasoning", delta.text}};
    case OutputKind::kContent:
      return {{"content", delta.text}};
    case OutputKind::kCallBegin:
      return call_delta({{"index", delta.call},
                         {"id", delta.id},
                         {"type", "function"},
                         {"function", {{"name", delta.text}, {"arguments", ""}}}});
    case OutputKind::kCallArguments:
      return call_delta({{"index", delta.call}, {"function", {{"arguments", delta.text}}}});
    case OutputKind::kCallEnd:
    case OutputKind::kMarkup:
      return nullptr;
  }
  __builtin_unreachable();
}

}  // namespace

Json chat_calls(const std::vector<ToolCall>& calls) {
  Json all = Json::array();
  for (const ToolCall& call : calls) {
    all.push_back({{"id", call.id},
                   {"type", "function"},
                   {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return all;
}

std::string finish_reason(const AnswerPart& answer) {
  const bool is_cut = answer.statistics.reason == FinishReason::kTokensMax ||
                      answer.statistics.reason == FinishReason::kContextFull;
  if (is_cut) return "length";
  return answer.complete_calls > 0 ? "tool_calls" : "stop";
}

ChatEncoder::ChatEncoder(ChatAnswerOptions options, TokenSpelling spelling)
    : options_(std::move(options)),
      spelling_(spelling),
      choices_(static_cast<size_t>(options_.generation.choices)),
      timings_(choices_) {}

Json ChatEncoder::head(const char* object, Json choices) const {
  const AnswerIdentity& identity = options_.identity;
  return {{"id", identity.id},
          {"object", object},
          {"created", identity.created},
          {"model", identity.model},
          {"system_fingerprint", identity.fingerprint},
          {"choices", std::move(choices)}};
}

// With include_usage every frame has the field.
std::string ChatEncoder::frame(Json json) const {
  if (options_.generation.include_usage && !json.contains("usage")) json["usage"] = nullptr;
  return data_frame(json);
}

Json ChatEncoder::chunk(size_t choice, Json delta, const Json& reason) const {
  return head("chat.completion.chunk", Json::array({{{"index", choice},
                                                     {"delta", std::move(delta)},
                                                     {"logprobs", nullptr},
                                                     {"finish_reason", reason}}}));
}

Json ChatEncoder::logprobs(const std::vector<ScoredToken>& scores) const {
  return {{"content", scores_json(scores, spelling_)}, {"refusal", nullptr}};
}

std::string ChatEncoder::begin() {
  std::string bytes;
  for (size_t i = 0; i < choices_; ++i) {
    bytes += frame(chunk(i, {{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}}));
  }
  return bytes;
}

std::string ChatEncoder::progress(size_t choice, const PromptProgress& progress) {
  timings_[choice].on_progress(progress);
  if (!options_.generation.return_progress) return {};
  Json json = chunk(choice, Json::object());
  json["prompt_progress"] = progress_json(progress);
  return frame(std::move(json));
}

std::string ChatEncoder::delta(const AnswerDelta& delta) {
  Json said = delta_json(delta);
  if (said.is_null()) return {};
  Json json = chunk(delta.choice, std::move(said));
  if (!delta.scores.empty()) json["choices"][0]["logprobs"] = logprobs(delta.scores);
  if (options_.generation.timings_per_token) json["timings"] = timings_[delta.choice].on_delta();
  return frame(std::move(json));
}

void ChatEncoder::add_end(Json& json) const {
  json["moeflux"] = moeflux_json(options_.identity, answers_);
  if (options_.prompt) json["__verbose"] = {{"prompt", *options_.prompt}};
}

std::string ChatEncoder::end(const AnswerPart& answer) {
  if (answers_.empty() && options_.on_end) unkept_ = options_.on_end(answer);
  answers_.push_back(answer);
  const bool is_last = answers_.size() == choices_;
  Json json = chunk(answers_.size() - 1, Json::object(), finish_reason(answer));
  json["timings"] = timings_json(answer.statistics);
  if (is_last) add_end(json);
  std::string bytes = frame(std::move(json));
  if (!is_last) return bytes;
  if (options_.generation.include_usage) {
    Json usage = head("chat.completion.chunk", Json::array());
    usage["usage"] = usage_json(answers_);
    usage["timings"] = timings_json(answer.statistics);
    bytes += frame(std::move(usage));
  }
  return bytes.append(kStreamDone);
}

std::string ChatEncoder::fail(const ApiError& error) { return data_frame(error_body(error)); }

Json ChatEncoder::whole() {
  Json choices = Json::array();
  for (const AnswerPart& answer : answers_) {
    choices.push_back({{"index", choices.size()},
                       {"message", message_json(answer)},
                       {"logprobs", options_.with_logprobs ? logprobs(answer.scores) : Json()},
                       {"finish_reason", finish_reason(answer)}});
  }
  Json json = head("chat.completion", std::move(choices));
  json["usage"] = usage_json(answers_);
  json["timings"] = timings_json(answers_.front().statistics);
  add_end(json);
  return json;
}

}  // namespace moeflux::serve
