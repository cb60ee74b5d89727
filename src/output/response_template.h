// A model's own description of its output, the response_template of tokenizer_config.json, as a row
// of the table.
#pragma once

#include "base/json_fwd.h"
#include "base/result.h"
#include "output/output_format.h"

namespace moeflux {

/// Compiles what a row can say: fields of reasoning, content and tool calls between literals, calls
/// as JSON or as one tag per parameter. Patterns may be literals with \s* and one named group of
/// \w+. Fails with kUnsupported, naming the field and what of it, for all else; the caller then
/// chooses among the known formats. `what` names the source in messages.
Result<OutputFormat> compile_response_template(const Json& response_template,
                                               std::string_view what);

}  // namespace moeflux
