#include "cli/constraint_options.h"

#include "cli/text_input.h"

namespace moeflux {
namespace {

bool is_json(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && (text[first] == '{' || text == "true" || text == "false");
}

}  // namespace

void add_constraint_options(CommandOptions& command, ConstraintFlags& flags) {
  command.group("Structured output");
  Option& schema =
      command
          .add("-j,--json-schema,-jf,--json-schema-file", flags.json_schema,
               "JSON document of this schema: JSON, or a file with it; {}: any document")
          .value("SCHEMA");
  Option& grammar = command
                        .add("--grammar,--grammar-file", flags.grammar,
                             "Text of the grammar in this file: Lark, as llguidance reads it")
                        .value("FILE");
  Option& regex =
      command.add("--regex", flags.regex, "Text that this regular expression matches whole")
          .value("REGEX");
  schema.excludes(grammar).excludes(regex);
  grammar.excludes(regex);
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
