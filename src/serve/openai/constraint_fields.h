// The fields of OpenAI's requests that say what an answer has to be like.
#pragma once

#include "constraint/output_constraint.h"
#include "serve/request/chat_request.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// text, json_object or json_schema. Problems are left in `fields`, as below.
OutputConstraint read_response_format(Fields& fields);

/// "tool_choice", or "function_call" of the old interface.
const char* tool_choice_field(const Fields& fields);
ToolChoice read_tool_choice(Fields& fields, const char* field);

}  // namespace moeflux::serve
