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

struct ModelOutputFormat {
  OutputFormat format;
  /// Why the model's response_template was not taken; nothing to tell where that is well.
  Status refused;
};

/// The format of a model: its response_template where there is one that a row can say, else what
/// the rendered call, or the source of its chat template, looks like. Any JSON will do.
ModelOutputFormat output_format_of_model(const Json& tokenizer_config, std::string_view what,
                                         std::string_view rendered);

}  // namespace moeflux
