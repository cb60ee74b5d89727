#include "serve/responses/answer.h"

#include <algorithm>

#include "base/format.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

// Clients give up after minutes of silence.
constexpr double kSecondsBetween = 1.0;

Json usage_of(const AnswerPart& answer) {
  const TextStatistics& statistics = answer.statistics;
  return {{"input_tokens", statistics.prompt_tokens},
          {"input_tokens_details",
           {{"cached_tokens", statistics.cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", statistics.generated_tokens},
          {"output_tokens_details", {{"reasoning_tokens", answer.reasoning_tokens}}},
          {"total_tokens", statistics.prompt_tokens + statistics.generated_tokens}};
}

const char* id_prefix(AnswerItem::Kind kind) {
  switch (kind) {
    case AnswerItem::Kind::kReasoning:
      return "rs_";
    case AnswerItem::Kind::kText:
      return "msg_";
    case AnswerItem::Kind::kCall:
      return "fc_";
  }
  __builtin_unreachable();
}

}  // namespace

std::string ResponseEncoder::event(const char* type, Json fields) {
  Json json = {{"type", type}, {"sequence_number", events_++}};
  json.update(fields);
  return event_frame(type, json);
}

Json ResponseEncoder::response(const char* status) const {
  Json json = {{"id", options_.identity.id},
               {"object", "response"},
               {"created_at", options_.identity.created},
               {"completed_at", nullptr},
               {"status", status},
               {"background", false},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", options_.identity.model},
               {"output", Json::array()},
               {"service_tier", "default"},
               {"truncation", "disabled"},
               {"usage", nullptr}};
  json.update(options_.echo);
  return json;
}

// Unique, since the response's id is.
std::string ResponseEncoder::item_id(size_t index, const AnswerItem& item) const {
  const std::string_view id = options_.identity.id;
  return formatted("{}{}_{}", id_prefix(item.kind), id.substr(id.find('_') + 1), index);
}

Json ResponseEncoder::scores(const std::vector<ScoredToken>& scored) const {
  return !options_.spelling ? Json::array() : scores_json(scored, *options_.spelling);
}

Json ResponseEncoder::part(const AnswerItem& item) const {
  if (item.kind == AnswerItem::Kind::kReasoning) {
    return {{"type", "reasoning_text"}, {"text", item.text}};
  }
  return {{"type", "output_text"},
          {"text", item.text},
          {"annotations", Json::array()},
          {"logprobs", scores(item.scores)}};
}

Json ResponseEncoder::output_item(size_t index, const AnswerItem& item, const char* status) const {
  Json json = {{"id", item_id(index, item)}};
  const bool has_begun = !item.text.empty();
  switch (item.kind) {
    case AnswerItem::Kind::kReasoning:
      json["type"] = "reasoning";
      json["summary"] = Json::array();
      json["content"] = has_begun ? Json::array({part(item)}) : Json::array();
      break;
    case AnswerItem::Kind::kText:
      json["type"] = "message";
      json["role"] = "assistant";
      json["content"] = has_begun ? Json::array({part(item)}) : Json::array();
      break;
    case AnswerItem::Kind::kCall:
      json["type"] = "function_call";
      json["call_id"] = item.id;
      json["name"] = item.name;
      json["arguments"] = item.text;
      break;
  }
  json["status"] = status;
  return json;
}

Json ResponseEncoder::place(size_t index, const AnswerItem& item) const {
  Json json = {{"item_id", item_id(index, item)}, {"output_index", index}};
  if (item.kind != AnswerItem::Kind::kCall) json["content_index"] = 0;
  return json;
}

std::string ResponseEncoder::begin() {
  const Json running = response("in_progress");
  // Events are numbered as they are made: one statement each.
  std::string bytes = event("response.created", {{"response", running}});
  bytes += event("response.in_progress", {{"response", running}});
  return bytes;
}

std::string ResponseEncoder::progress(size_t /*choice*/, const PromptProgress& progress) {
  timings_.on_progress(progress);
  // Each repeats the request's tools, 20 KB of Codex's.
  const bool is_soon =
      progress.queue_position == 0 && progress.seconds < told_seconds_ + kSecondsBetween;
  if (!options_.return_progress && is_soon) return {};
  told_seconds_ = progress.seconds;
  Json fields = {{"response", response("in_progress")}};
  if (options_.return_progress) fields["prompt_progress"] = progress_json(progress);
  return event("response.in_progress", std::move(fields));
}

std::string ResponseEncoder::opened(size_t index, const AnswerItem& item) {
  std::string bytes =
      event("response.output_item.added",
            {{"output_index", index}, {"item", output_item(index, item, "in_progress")}});
  if (item.kind == AnswerItem::Kind::kCall) return bytes;
  Json fields = place(index, item);
  fields["part"] = part(item);
  return bytes + event("response.content_part.added", std::move(fields));
}

std::string ResponseEncoder::grown(size_t index, const AnswerItem& item, const AnswerDelta& delta) {
  Json fields = place(index, item);
  fields["delta"] = delta.text;
  if (options_.timings_per_token) fields["timings"] = timings_.on_delta();
  switch (item.kind) {
    case AnswerItem::Kind::kReasoning:
      return event("response.reasoning_text.delta", std::move(fields));
    case AnswerItem::Kind::kText:
      fields["logprobs"] = scores(delta.scores);
      return event("response.output_text.delta", std::move(fields));
    case AnswerItem::Kind::kCall:
      return event("response.function_call_arguments.delta", std::move(fields));
  }
  __builtin_unreachable();
}

std::string ResponseEncoder::closed(size_t index, const AnswerItem& item) {
  std::string bytes;
  Json fields = place(index, item);
  if (item.kind == AnswerItem::Kind::kCall) {
    fields["name"] = item.name;
    fields["arguments"] = item.text;
    bytes = event("response.function_call_arguments.done", std::move(fields));
  } else {
    const bool is_text = item.kind == AnswerItem::Kind::kText;
    Json ended = fields;
    ended["part"] = part(item);
    fields["text"] = item.text;
    if (is_text) fields["logprobs"] = scores(item.scores);
    bytes = event(is_text ? "response.output_text.done" : "response.reasoning_text.done",
                  std::move(fields));
    bytes += event("response.content_part.done", std::move(ended));
  }
  const char* status = is_cut_ || !item.complete ? "incomplete" : "completed";
  return bytes + event("response.output_item.done",
                       {{"output_index", index}, {"item", output_item(index, item, status)}});
}

std::string ResponseEncoder::end(const AnswerPart& answer) {
  is_cut_ = answer.statistics.reason == FinishReason::kTokensMax ||
            answer.statistics.reason == FinishReason::kContextFull;
  std::string bytes = close();
  response_ = response(is_cut_ ? "incomplete" : "completed");
  if (is_cut_) {
    response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  } else {
    response_["completed_at"] = std::max(options_.identity.created, unix_seconds());
  }
  for (size_t i = 0; i < items().size(); ++i) {
    const AnswerItem& item = items()[i];
    const bool is_whole = item.complete && !(is_cut_ && i + 1 == items().size());
    response_["output"].push_back(output_item(i, item, is_whole ? "completed" : "incomplete"));
  }
  response_["usage"] = usage_of(answer);
  response_["moeflux"] = moeflux_json(options_.identity, {answer});
  if (const auto why = options_.on_end ? options_.on_end(response_) : std::nullopt) {
    response_["store"] = false;
    response_["moeflux"]["not_stored"] = *why;
  }
  return bytes + event(is_cut_ ? "response.incomplete" : "response.completed",
                       {{"response", response_}, {"timings", timings_json(answer.statistics)}});
}

std::string ResponseEncoder::fail(const ApiError& error) {
  Json failed = response("failed");
  failed["store"] = false;  // what has failed is not kept
  failed["error"] = {{"code", error.code.empty() ? error.type : error.code},
                     {"message", error.message}};
  return event("response.failed", {{"response", std::move(failed)}});
}

}  // namespace moeflux::serve
