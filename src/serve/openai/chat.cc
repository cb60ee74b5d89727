#include "serve/openai/chat.h"

#include <utility>

#include "schedule/text_request.h"
#include "serve/openai/chat_messages.h"
#include "serve/openai/constraint_fields.h"
#include "serve/openai/field_lists.h"

namespace moeflux::serve {
namespace {

// The last one that is given counts.
int64_t read_tokens_max(Fields& fields) {
  int64_t most = -1;
  for (const char* name : {"max_tokens", "n_predict", "max_completion_tokens"}) {
    if (const auto tokens = fields.integer(name, {-1, kTokenCountMax})) most = *tokens;
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

// The continued message is one text.
void check_last_two(Fields& fields, const TemplateRequest& conversation) {
  const Json& messages = conversation.messages;
  if (messages.size() < 2) return;
  const Json& before = messages[messages.size() - 2];
  if (!before.is_object() || before.value("role", Json()) != "assistant") return;
  fields.fail(bad_field("messages",
                        "messages end with two of the assistant, expected one to be continued"));
}

}  // namespace

DecodedChat decode_chat_request(const Json& body, const RequestDefaults& defaults) {
  Fields fields(body, chat_field_list());
  ChatRequest request{.generation = read_generation_fields(fields, defaults.sampler)};
  request.conversation.messages = read_chat_messages(fields);
  request.generation.tokens_max = read_tokens_max(fields);
  const char* choice_field = tool_choice_field(fields);
  ToolChoice choice = read_tool_choice(fields, choice_field);
  Json tools = read_chat_tools(fields, request.dropped_tools, request.tool_sources);
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
  request.generation.return_routes = fields.boolean("return_routes").value_or(false);
  request.tells_prompt = fields.boolean("verbose").value_or(false);
  if (const auto words = fields.text("verbosity")) {
    request.conversation.variables["verbosity"] = *words;
  }
  read_template_variables(fields, request);
  read_continuation(fields, request);
  if (request.conversation.continue_final_message) check_last_two(fields, request.conversation);
  read_logprobs(fields, request);
  request.reasoning_tokens_max = read_reasoning_budget(fields, defaults);
  // Read by who asks for the answer.
  for (const char* name : {"model", "conversation"}) (void)fields.has(name);
  request.generation.ignored = fields.ignored();
  if (fields.problem()) return *fields.problem();
  return request;
}

}  // namespace moeflux::serve
