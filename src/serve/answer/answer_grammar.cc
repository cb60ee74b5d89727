#include "serve/answer/answer_grammar.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "grammar/answer_grammar.h"
#include "serve/answer/loosened_schema.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr std::chrono::milliseconds kToolsTime{5000};

// The message begins with the field.
ApiError refusal(const Error& error) {
  const std::string& message = error.message();
  std::string param = message.substr(0, message.find_first_of("#:"));
  if (error.code() == ErrorCode::kUnsupported) return unsupported_field(std::move(param), message);
  const bool is_clients =
      error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kResourceExhausted;
  return is_clients ? bad_field(std::move(param), message) : api_error(error);
}

const Json* function_of(const Json& tool) {
  const auto function = tool.is_object() ? tool.find("function") : tool.end();
  return tool.is_object() && function != tool.end() && function->is_object() ? &*function : nullptr;
}

// As much of a tool's schema as arguments can be held to: what the compiler refuses is left out,
// one part after the other.
Json enforceable(OpenModel& model, const Json& parameters, const std::function<bool()>& is_over) {
  constexpr int kPartsMax = 32;
  Json left = parameters;
  for (int i = 0; i < kPartsMax && !is_over(); ++i) {
    const auto compiled =
        model.compile({.kind = ConstraintKind::kJsonSchema, .text = dump_json(left)});
    if (compiled.ok()) return left;
    std::optional<Json> less = without_refused(left, compiled.error().message());
    if (!less) less = types_alone(left);
    if (*less == left) break;
    left = *std::move(less);
  }
  return {{"type", "object"}};
}

// The tools that the rule allows, as grammars need them.
Result<std::vector<CallableTool>> callable_tools(OpenModel& model, const ChatRequest& request,
                                                 const std::function<bool()>& is_given_up) {
  const auto begin = std::chrono::steady_clock::now();
  const auto is_late = [&] { return std::chrono::steady_clock::now() - begin > kToolsTime; };
  const auto is_over = [&] { return is_late() || is_given_up(); };
  std::vector<CallableTool> callable;
  const Json& tools = request.conversation.tools;
  const std::set<std::string> names(request.tool_rule.names.begin(), request.tool_rule.names.end());
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json* function = function_of(tools[i]);
    if (function == nullptr || !function->value("name", Json()).is_string()) continue;
    CallableTool tool{.name = function->at("name").get<std::string>()};
    if (!names.empty() && names.count(tool.name) == 0) continue;
    tool.strict = function->value("strict", Json()) == true;
    tool.source = i < request.tool_sources.size() ? request.tool_sources[i]
                                                  : formatted("tools[{}].function.parameters", i);
    const Json parameters = function->value("parameters", Json());
    if (parameters.is_object()) tool.parameters = parameters;
    // Arguments are an object, also where the schema leaves that out.
    if (!tool.parameters.contains("type")) tool.parameters["type"] = "object";
    if (is_given_up()) return make_error(ErrorCode::kCancelled, "the client has gone");
    // Each may take as long as a grammar may; who sends a hundred of those waits for one.
    if (is_late()) {
      return make_error(ErrorCode::kInvalidArgument, "tools: takes longer than {} ms to compile",
                        kToolsTime.count());
    }
    if (!tool.strict) tool.parameters = enforceable(model, tool.parameters, is_over);
    callable.push_back(std::move(tool));
  }
  return callable;
}

bool has_strict_tool(const Json& tools) {
  return std::any_of(tools.begin(), tools.end(), [](const Json& tool) {
    const Json* function = function_of(tool);
    return function != nullptr && function->value("strict", Json()) == true;
  });
}

}  // namespace

bool needs_compile(const ChatRequest& request) {
  const ToolRule& tools = request.tool_rule;
  return tools.required || !tools.names.empty() || has_strict_tool(request.conversation.tools) ||
         request.constraint.kind != ConstraintKind::kNone;
}

AnswerConstraint compile_text(OpenModel& model, const OutputConstraint& constraint) {
  if (constraint.kind == ConstraintKind::kNone) return std::shared_ptr<const Constraint>();
  Result<std::shared_ptr<const Constraint>> compiled = model.compile(constraint);
  if (!compiled.ok()) return refusal(compiled.error());
  return std::move(compiled).value();
}

AnswerConstraint compile_answer(OpenModel& model, const ChatFormat& format,
                                std::string_view prompt_tail, const ChatRequest& request,
                                const std::function<bool()>& is_given_up) {
  if (!needs_compile(request)) return std::shared_ptr<const Constraint>();
  const Status dialect = check_dialect(request.constraint);
  if (!dialect.ok()) return refusal(dialect.error());
  AnswerRule rule{.content = request.constraint,
                  .calls_required = request.tool_rule.required,
                  .one_call = request.calls_once(),
                  .may_reason = format.may_reason()};
  // Calls may come beside content that is held to something, too.
  if (!request.conversation.tools.is_null()) {
    Result<std::vector<CallableTool>> callable = callable_tools(model, request, is_given_up);
    if (!callable.ok()) return refusal(callable.error());
    rule.tools = std::move(callable).value();
  }
  const Result<OutputConstraint> grammar =
      answer_grammar(format.output(), model.text.tokenizer.value(), prompt_tail, rule);
  if (!grammar.ok()) return refusal(grammar.error());
  return compile_text(model, *grammar);
}

}  // namespace moeflux::serve
