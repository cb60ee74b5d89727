// A request for an answer in a conversation, whichever interface it came in, and what the decoders
// of all interfaces do with what they have read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "constraint/output_constraint.h"
#include "output/tool_types.h"
#include "serve/request/generation_fields.h"
#include "serve/wire/api_error.h"
#include "templates/chat_template.h"

namespace moeflux::serve {

/// A server's defaults for fields that a request does not have.
struct RequestDefaults {
  SamplerOptions sampler;
  int64_t reasoning_tokens_max = -1;
  Json template_variables = Json::object();
};

/// The calls that an answer must or may hold. Strict tools say so themselves.
struct ToolRule {
  bool required = false;           // at least one
  std::vector<std::string> names;  // of these tools alone; empty: of any
  bool one = false;                // and no second: a tool that is named is called once
};

/// The choice among tools, which a request states beside them.
struct ToolChoice {
  ToolRule rule = {};
  bool shown = true;  // the model is told of the tools
};

struct ChatRequest {
  GenerationFields generation;
  TemplateRequest conversation;            // messages, tools that the model is shown, variables
  std::shared_ptr<const ToolTypes> tools;  // of all tools of the request
  bool one_call = false;                   // the client takes no second call
  ToolRule tool_rule;
  OutputConstraint constraint;        // of the content
  int64_t reasoning_tokens_max = -1;  // negative: no limit
  int32_t top_logprobs = -1;          // negative: none
  bool tells_prompt = false;          // beside the answer
  /// Where the schema of each tool stands in the request: "tools[2].input_schema". Empty: where
  /// OpenAI's chat completions have it.
  std::vector<std::string> tool_sources = {};
  /// Tools that were left out since nobody here can run them, by type.
  std::vector<std::string> dropped_tools = {};

  bool calls_once() const { return one_call || tool_rule.one; }
};

/// The result of an interface's decoder of a body.
using DecodedChat = std::variant<ChatRequest, ApiError>;

// The functions below leave problems in `fields`, under the client's own names.

/// The name of a tool, or of one that a choice names: {"function": {"name": NAME}}, with or without
/// a type, or {"name": NAME}. Empty for anything else.
std::string tool_name(const Json& tool);

/// The tools of a request as chat templates have them, {"type": "function", "function": {"name",
/// "description", "parameters", "strict"}}; null or none: it has no tools. `field` is what the
/// client calls its choice, which names tools that there are, and asks for a call if there are any.
/// After dropped_tools.
void set_tools(Fields& fields, ChatRequest& request, Json tools, ToolChoice choice,
               std::string_view field);

/// How much a model that thinks shall think; "none" is not at all. Over the server's variables, and
/// before read_template_variables().
void set_effort(ChatRequest& request, const std::string& effort);
/// reasoning_budget, or what llama.cpp and vLLM call it.
int64_t read_reasoning_budget(Fields& fields, const RequestDefaults& defaults);
/// enable_thinking, documents and chat_template_kwargs.
void read_template_variables(Fields& fields, ChatRequest& request);

/// A document of that schema, which the client calls `source`.
OutputConstraint held_to_schema(const Json& schema, std::string source);
/// The constraint of the answer: `own`, which the interface's own fields say, or one of
/// constraint_rows(), which all interfaces have. Two are a problem.
OutputConstraint read_constraint(Fields& fields, OutputConstraint own);

/// Whether the answer goes on with the last message, which all interfaces say in vLLM's words if at
/// all. After messages and constraint, and puts results of calls in the order of the calls.
void read_continuation(Fields& fields, ChatRequest& request);

}  // namespace moeflux::serve
