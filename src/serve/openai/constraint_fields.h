// The fields of OpenAI's requests that say what an answer has to be like.
#pragma once

#include "base/json.h"
#include "constraint/output_constraint.h"
#include "serve/chat_request.h"
#include "serve/fields.h"

namespace moeflux::serve {

/// response_format: text, json_object or json_schema; or llama.cpp's json_schema and grammar, which
/// is Lark here, or regex. Problems are left in `fields`.
OutputConstraint read_constraint(Fields& fields);

/// tool_choice, or function_call of the old interface, for these tools.
struct ToolChoice {
  ToolRule rule = {};
  bool shown = true;  // the model is told of the tools
};
ToolChoice read_tool_choice(Fields& fields, const Json& tools);

}  // namespace moeflux::serve
