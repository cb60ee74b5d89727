#include "serve/answer_grammar.h"

#include <string>

#include "base/format.h"

namespace moeflux::serve {
namespace {

bool is_strict(const Json& tool) {
  const auto function = tool.is_object() ? tool.find("function") : tool.end();
  if (!tool.is_object() || function == tool.end() || !function->is_object()) return false;
  const auto strict = function->find("strict");
  return strict != function->end() && strict->is_boolean() && strict->get<bool>();
}

}  // namespace

std::optional<ApiError> check_constraints(const ChatRequest& request) {
  if (request.constraint.kind != ConstraintKind::kNone) {
    const std::string& source = request.constraint.source;
    return unsupported_field(source, source + ": answers cannot be held to a grammar yet");
  }
  if (request.tool_rule.required || !request.tool_rule.names.empty()) {
    return unsupported_field("tool_choice", "tool_choice: calls cannot be forced yet");
  }
  const Json& tools = request.conversation.tools;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!is_strict(tools[i])) continue;
    const std::string param = formatted("tools[{}].function.strict", i);
    return unsupported_field(param, param + ": arguments cannot be held to a schema yet");
  }
  return std::nullopt;
}

}  // namespace moeflux::serve
