#include "cli/constraint_options.h"

#include <utility>

#include "base/format.h"
#include "cli/text_input.h"

namespace moeflux {
namespace {

bool is_json(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && (text[first] == '{' || text == "true" || text == "false");
}

}  // namespace

void add_constraint_options(CLI::App& app, ConstraintFlags& flags) {
  CLI::Option* schema =
      app.add_option("-j,--json-schema", flags.json_schema,
                     "Generate a JSON document of this schema: JSON, or a file with it ({}: any)");
  CLI::Option* grammar =
      app.add_option("--grammar", flags.grammar,
                     "Generate a text of the grammar in this file: Lark, as llguidance reads it");
  CLI::Option* regex = app.add_option("--regex", flags.regex,
                                      "Generate a text that this regular expression matches");
  schema->excludes(grammar)->excludes(regex);
  grammar->excludes(regex);
}

Result<OutputConstraint> output_constraint(const ConstraintFlags& flags) {
  OutputConstraint constraint;
  if (!flags.json_schema.empty()) {
    constraint = {.kind = ConstraintKind::kJsonSchema, .source = "--json-schema"};
    constraint.text = flags.json_schema;
    if (!is_json(flags.json_schema)) {
      MF_ASSIGN_OR_RETURN(constraint.text, read_text_input(flags.json_schema));
    }
  } else if (!flags.grammar.empty()) {
    constraint = {.kind = ConstraintKind::kLark, .source = "--grammar"};
    MF_ASSIGN_OR_RETURN(constraint.text, read_text_input(flags.grammar));
  } else if (!flags.regex.empty()) {
    constraint = {.kind = ConstraintKind::kRegex, .text = flags.regex, .source = "--regex"};
  }
  MF_RETURN_IF_ERROR(check_dialect(constraint));
  return constraint;
}

}  // namespace moeflux
