#include "serve/openai/chat.h"

#include <utility>

#include "base/format.h"
#include "serve/openai/chat_messages.h"
#include "serve/openai/constraint_fields.h"
#include "serve/openai/field_lists.h"

namespace moeflux::serve {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;

// The last one that is given counts.
int64_t read_tokens_max(Fields& fields) {
  int64_t most = -1;
  for (const char* name : {"max_tokens", "n_predict", "max_completion_tokens"}) {
    if (const auto tokens = fields.integer(name, {-1, kTokensMax})) most = *tokens;
  }
  return most;
}

void read_logprobs(Fields& fields, ChatRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", {0, kTopLogprobsMax});
  if (top && *top > 0 && !wanted) {
    fields.fail(bad_field("top_logprobs", "top_logprobs is given without logprobs: true"));
  }
  if (wanted) request.top_logprobs = static_cast<int32_t>(top.value_or(0));
}

Json logprobs_json(const std::vector<ScoredToken>& scores, const TokenSpelling& spelling) {
  return {{"content", scores_json(scores, spelling)}, {"refusal", nullptr}};
}

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

Json chunk(const AnswerIdentity& identity, Json choices) {
  return {{"id", identity.id},
          {"object", "chat.completion.chunk"},
          {"created", identity.created},
          {"model", identity.model},
          {"system_fingerprint", identity.fingerprint},
          {"choices", std::move(choices)}};
}

Json choice_chunk(const AnswerIdentity& identity, int64_t choice, Json delta,
                  const Json& reason = nullptr) {
  return chunk(identity, Json::array({{{"index", choice},
                                       {"delta", std::move(delta)},
                                       {"logprobs", nullptr},
                                       {"finish_reason", reason}}}));
}

}  // namespace

DecodedChat decode_chat_request(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, chat_field_list());
  ChatRequest request{.generation = read_generation_fields(fields, defaults.sampler)};
  request.conversation.messages = read_chat_messages(fields);
  request.generation.tokens_max = read_tokens_max(fields);
  const char* choice_field = tool_choice_field(fields);
  ToolChoice choice = read_tool_choice(fields, choice_field);
  Json tools = read_chat_tools(fields, choice.rule.required, request.dropped_tools);
  set_tools(fields, request, std::move(tools), std::move(choice), choice_field);
  request.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
  request.constraint = read_constraint(fields, read_response_format(fields));
  request.conversation.variables = defaults.template_variables;
  if (const auto effort = fields.text("reasoning_effort")) set_effort(request, *effort);
  if (const Json* thinking = fields.object("thinking")) {  // of DeepSeek's and Z.ai's clients
    Fields inner(*thinking, "thinking");
    const auto type = inner.text("type");
    if (type) request.conversation.variables["enable_thinking"] = *type != "disabled";
    if (inner.problem()) fields.fail(*inner.problem());
  }
  if (const auto words = fields.text("verbosity")) {
    request.conversation.variables["verbosity"] = *words;
  }
  read_template_variables(fields, request);
  read_continuation(fields, request);
  read_logprobs(fields, request);
  request.reasoning_tokens_max = read_reasoning_budget(fields, defaults);
  // Read by who asks for the answer.
  for (const char* name : {"model", "conversation"}) (void)fields.has(name);
  request.generation.ignored = fields.ignored();
  if (fields.problem()) return *fields.problem();
  return request;
}

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

Json chat_completion(const AnswerIdentity& identity, const std::vector<AnswerPart>& answers,
                     const TokenSpelling& spelling, bool with_logprobs) {
  Json choices = Json::array();
  for (size_t i = 0; i < answers.size(); ++i) {
    choices.push_back(
        {{"index", i},
         {"message", message_json(answers[i])},
         {"logprobs", with_logprobs ? logprobs_json(answers[i].scores, spelling) : Json()},
         {"finish_reason", finish_reason(answers[i])}});
  }
  return {{"id", identity.id},
          {"object", "chat.completion"},
          {"created", identity.created},
          {"model", identity.model},
          {"system_fingerprint", identity.fingerprint},
          {"choices", std::move(choices)},
          {"usage", usage_json(answers)},
          {"timings", timings_json(answers.front().statistics)},
          {"moeflux", moeflux_json(identity, answers)}};
}

Json chat_first_chunk(const AnswerIdentity& identity, int64_t choice) {
  return choice_chunk(identity, choice,
                      {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}});
}

Json chat_delta_chunk(const AnswerIdentity& identity, int64_t choice, const AnswerDelta& delta,
                      const TokenSpelling& spelling) {
  const auto call_chunk = [&](Json call) {
    return choice_chunk(identity, choice, {{"tool_calls", Json::array({std::move(call)})}});
  };
  switch (delta.kind) {
    case OutputKind::kReasoning:
      return choice_chunk(identity, choice,
                          {{"reasoning_content", delta.text}, {"reasoning", delta.text}});
    case OutputKind::kContent: {
      Json frame = choice_chunk(identity, choice, {{"content", delta.text}});
      if (!delta.scores.empty()) {
        frame["choices"][0]["logprobs"] = logprobs_json(delta.scores, spelling);
      }
      return frame;
    }
    case OutputKind::kCallBegin:
      return call_chunk({{"index", delta.call},
                         {"id", delta.id},
                         {"type", "function"},
                         {"function", {{"name", delta.text}, {"arguments", ""}}}});
    case OutputKind::kCallArguments:
      return call_chunk({{"index", delta.call}, {"function", {{"arguments", delta.text}}}});
    case OutputKind::kCallEnd:
    case OutputKind::kMarkup:
      break;
  }
  return {};
}

Json chat_last_chunk(const AnswerIdentity& identity, int64_t choice, const AnswerPart& answer) {
  return choice_chunk(identity, choice, Json::object(), finish_reason(answer));
}

Json chat_usage_chunk(const AnswerIdentity& identity, const std::vector<AnswerPart>& answers) {
  Json frame = chunk(identity, Json::array());
  frame["usage"] = usage_json(answers);
  return frame;
}

Json chat_progress_chunk(const AnswerIdentity& identity, int64_t choice,
                         const PromptProgress& progress) {
  Json frame = choice_chunk(identity, choice, Json::object());
  frame["prompt_progress"] = progress_json(progress);
  return frame;
}

}  // namespace moeflux::serve
