#include "serve/anthropic/answer.h"

#include <utility>

#include "base/format.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

/// Clients send a block of thinking back with its signature. Nothing here reads it.
constexpr std::string_view kSignature = "moeflux";

Json usage_of(int64_t prompt, int64_t cached, int64_t generated) {
  return {{"input_tokens", prompt - cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached},
          {"output_tokens", generated}};
}

std::string stop_reason(const AnswerPart& answer, int64_t tokens_max) {
  const TextStatistics& statistics = answer.statistics;
  const bool is_asked = tokens_max >= 0 && statistics.generated_tokens >= tokens_max;
  switch (statistics.reason) {
    case FinishReason::kTokensMax:
      return is_asked ? "max_tokens" : "model_context_window_exceeded";
    case FinishReason::kContextFull:
      return "model_context_window_exceeded";
    case FinishReason::kStopToken:
    case FinishReason::kStopString:
    case FinishReason::kCancelled:
      break;
  }
  if (!answer.stopped_by.empty()) return "stop_sequence";
  return answer.complete_calls > 0 ? "tool_use" : "end_turn";
}

std::string event(const char* type, Json fields) {
  Json json = {{"type", type}};
  json.update(fields);
  return event_frame(type, json);
}

Json block_of(const AnswerItem& item) {
  switch (item.kind) {
    case AnswerItem::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", item.text}, {"signature", kSignature}};
    // Without citations: Anthropic leaves them out, and clients that check answers refuse null.
    case AnswerItem::Kind::kText:
      return {{"type", "text"}, {"text", item.text}};
    case AnswerItem::Kind::kCall:
      break;
  }
  Result<Json> input = parse_json(item.text, "arguments");
  return {{"type", "tool_use"},
          {"id", item.id},
          {"name", item.name},
          {"input", input.ok() ? std::move(input).value() : Json::object()}};
}

// Anthropic's SDKs choose a class by the status; people read the type.
std::string_view anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// Claude Code shortens a conversation where it reads these words, and the numbers behind them.
std::string message_of(const ApiError& error) {
  if (error.type != kTooLong) return error.message;
  const auto tokens = error.details.find("n_prompt_tokens");
  const auto context = error.details.find("n_ctx");
  if (tokens == error.details.end() || context == error.details.end()) {
    return "prompt is too long: " + error.message;
  }
  return formatted("prompt is too long: {} tokens > {} maximum (see --ctx-size)", tokens->dump(),
                   context->dump());
}

}  // namespace

std::string anthropic_error_text(const ApiError& error, std::string_view request_id) {
  return dump_json({{"type", "error"},
                    {"error", {{"type", anthropic_type(error)}, {"message", message_of(error)}}},
                    {"request_id", request_id.empty() ? Json() : Json(request_id)}});
}

Json MessageEncoder::message(Json content) const {
  return {{"id", options_.identity.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", options_.identity.model},
          {"content", std::move(content)},
          {"stop_reason", stop_reason_},
          {"stop_sequence", stop_sequence_},
          {"usage", usage_}};
}

std::string MessageEncoder::begin() {
  // How much of the prompt is there from earlier is known when the text begins; the last event
  // tells.
  usage_ = usage_of(options_.prompt_tokens, 0, 0);
  return event("message_start", {{"message", message(Json::array())}});
}

std::string MessageEncoder::opened(size_t index, const AnswerItem& item) {
  Json block = block_of(item);
  if (item.kind == AnswerItem::Kind::kReasoning) block["signature"] = "";
  return event("content_block_start", {{"index", index}, {"content_block", std::move(block)}});
}

std::string MessageEncoder::grown(size_t index, const AnswerItem& item, const AnswerDelta& delta) {
  Json piece;
  switch (item.kind) {
    case AnswerItem::Kind::kReasoning:
      piece = {{"type", "thinking_delta"}, {"thinking", delta.text}};
      break;
    case AnswerItem::Kind::kText:
      piece = {{"type", "text_delta"}, {"text", delta.text}};
      break;
    case AnswerItem::Kind::kCall:
      piece = {{"type", "input_json_delta"}, {"partial_json", delta.text}};
      break;
  }
  return event("content_block_delta", {{"index", index}, {"delta", std::move(piece)}});
}

std::string MessageEncoder::closed(size_t index, const AnswerItem& item) {
  std::string bytes;
  if (item.kind == AnswerItem::Kind::kReasoning) {
    bytes = event(
        "content_block_delta",
        {{"index", index}, {"delta", {{"type", "signature_delta"}, {"signature", kSignature}}}});
  }
  return bytes + event("content_block_stop", {{"index", index}});
}

std::string MessageEncoder::end(const AnswerPart& answer) {
  std::string bytes = close();
  stop_reason_ = stop_reason(answer, options_.tokens_max);
  if (stop_reason_ == "stop_sequence") stop_sequence_ = answer.stopped_by;
  const TextStatistics& statistics = answer.statistics;
  usage_ =
      usage_of(statistics.prompt_tokens, statistics.cached_tokens, statistics.generated_tokens);
  moeflux_ = moeflux_json(options_.identity, {answer});
  bytes += event("message_delta",
                 {{"delta", {{"stop_reason", stop_reason_}, {"stop_sequence", stop_sequence_}}},
                  {"usage", usage_},
                  {"moeflux", moeflux_}});
  return bytes + event("message_stop", Json::object());
}

std::string MessageEncoder::fail(const ApiError& error) {
  return formatted("event: error\ndata: {}\n\n", anthropic_error_text(error));
}

Json MessageEncoder::whole() {
  Json content = Json::array();
  for (const AnswerItem& item : items()) content.push_back(block_of(item));
  Json whole = message(std::move(content));
  whole["moeflux"] = moeflux_;
  return whole;
}

}  // namespace moeflux::serve
