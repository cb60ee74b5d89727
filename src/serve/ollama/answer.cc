#include "serve/ollama/answer.h"

#include <cmath>
#include <utility>

#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

std::string ollama_error_text(const ApiError& error, std::string_view /*request_id*/) {
  return dump_json({{"error", error.message}});
}

Json OllamaEncoder::said(const std::string& content, const std::string& thinking,
                         Json calls) const {
  if (!options_.is_chat) {
    Json text = {{"response", content}};
    if (!thinking.empty()) text["thinking"] = thinking;
    return text;
  }
  Json message = {{"role", "assistant"}, {"content", content}};
  if (!thinking.empty()) message["thinking"] = thinking;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return {{"message", std::move(message)}};
}

Json OllamaEncoder::line(Json said, bool done) const {
  Json json = {{"model", options_.model}, {"created_at", options_.clock()}};
  json.update(said);
  json["done"] = done;
  return json;
}

Json OllamaEncoder::scored(Json line, const std::vector<ScoredToken>& scores) const {
  if (options_.spelling && !scores.empty()) {
    line["logprobs"] = scores_json(scores, *options_.spelling);
  }
  return line;
}

// Calls at once come in one line: LiteLLM numbers those of each line from 0 on, and joins what has
// one number.
std::string OllamaEncoder::call_line() {
  if (untold_.empty()) return {};
  return json_line(line(said("", "", std::exchange(untold_, Json::array())), false));
}

std::string OllamaEncoder::delta(const AnswerDelta& delta) {
  switch (delta.kind) {
    case OutputKind::kReasoning:
      return call_line() + json_line(line(said("", delta.text, Json::array()), false));
    case OutputKind::kContent:
      return call_line() +
             json_line(scored(line(said(delta.text, "", Json::array()), false), delta.scores));
    case OutputKind::kCallBegin:
      call_ = {.id = delta.id, .name = delta.text};
      return {};
    case OutputKind::kCallArguments:
      call_.arguments += delta.text;
      return {};
    case OutputKind::kCallEnd: {
      // Arguments are an object here, so a call comes whole or not at all.
      Result<Json> arguments = parse_json(call_.arguments, "arguments");
      if (!arguments.ok() || !options_.is_chat) return {};
      // Clients join what has one index to one call.
      const Json call = {{"id", call_.id},
                         {"function",
                          {{"index", calls_.size()},
                           {"name", call_.name},
                           {"arguments", std::move(arguments).value()}}}};
      calls_.push_back(call);
      untold_.push_back(call);
      return {};
    }
    case OutputKind::kMarkup:
      return {};
  }
  __builtin_unreachable();
}

std::string OllamaEncoder::end(const AnswerPart& answer) {
  const TextStatistics& statistics = answer.statistics;
  const bool is_cut = statistics.reason == FinishReason::kTokensMax ||
                      statistics.reason == FinishReason::kContextFull;
  // The model is there. Ollama's loading time is the time until it can begin: here, until this
  // answer's turn came.
  const int64_t load = nanoseconds(statistics.queued_seconds);
  const int64_t prompt = nanoseconds(statistics.prefill_seconds);
  const int64_t eval = nanoseconds(statistics.decode_seconds);
  Json numbers = {{"done_reason", is_cut ? "length" : "stop"}};
  if (options_.prompt) {
    numbers["context"] = *options_.prompt;
    for (const TokenId token : answer.tokens) numbers["context"].push_back(token);
  }
  numbers.update({{"total_duration", load + prompt + eval},
                  {"load_duration", load},
                  {"prompt_eval_count", statistics.prompt_tokens},
                  {"prompt_eval_duration", prompt},
                  {"eval_count", statistics.generated_tokens},
                  {"eval_duration", eval}});
  if (!options_.ignored.empty()) numbers["moeflux"] = {{"ignored", options_.ignored}};
  whole_ = scored(line(said(answer.content, answer.reasoning, calls_), true), answer.scores);
  whole_.update(numbers);
  Json last = line(said("", "", Json::array()), true);
  last.update(numbers);
  return call_line() + json_line(last);
}

std::string OllamaEncoder::fail(const ApiError& error) { return ollama_error_text(error) + "\n"; }

Json OllamaEncoder::moved(std::string_view reason) const {
  Json json = line(said("", "", Json::array()), true);
  json["done_reason"] = reason;
  return json;
}

Json OllamaEncoder::shown(const std::string& prompt) const {
  Json json = line(said("", "", Json::array()), true);
  json["_debug_info"] = {{"rendered_template", prompt}};
  return json;
}

}  // namespace moeflux::serve
