#include "serve/request/guided_fields.h"

#include <array>
#include <string>
#include <utility>

#include "base/format.h"
#include "grammar/lark_text.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr size_t kGuidedChoicesMax = 16384;

/// The names of one way to say it.
struct Names {
  const char* json;
  const char* regex;
  const char* choice;
  const char* grammar;
};

// A schema, or its text.
void read_schema(Fields& fields, const char* name, std::vector<OutputConstraint>& read) {
  const Json* schema = fields.find(name);
  if (schema == nullptr) return;
  const std::string param = fields.full_name(name);
  if (schema->is_string() && !parse_json(schema->get_ref<const std::string&>(), param).ok()) {
    return fields.fail(bad_field(param, formatted("{} is {}, expected a JSON schema or its text",
                                                  param, json_excerpt(*schema))));
  }
  read.push_back({.kind = ConstraintKind::kJsonSchema,
                  .text = schema->is_string() ? schema->get<std::string>() : dump_json(*schema),
                  .source = param});
}

void read_choices(Fields& fields, const char* name, std::vector<OutputConstraint>& read) {
  const Json* list = fields.array(name);
  if (list == nullptr) return;
  std::string either;
  bool is_good = !list->empty() && list->size() <= kGuidedChoicesMax;
  for (size_t i = 0; is_good && i < list->size(); ++i) {
    is_good = (*list)[i].is_string();
    if (i > 0) either += '|';
    if (is_good) either += regex_escaped((*list)[i].get_ref<const std::string&>());
  }
  const std::string param = fields.full_name(name);
  if (!is_good) {
    fields.fail(bad_field(param, formatted("{} is {}, expected one to {} strings", param,
                                           json_excerpt(*list), kGuidedChoicesMax)));
  }
  read.push_back({.kind = ConstraintKind::kRegex, .text = std::move(either), .source = param});
}

void read_named(Fields& fields, const Names& names, std::vector<OutputConstraint>& read) {
  read_schema(fields, names.json, read);
  if (auto regex = fields.text(names.regex)) {
    read.push_back({.kind = ConstraintKind::kRegex,
                    .text = std::move(*regex),
                    .source = fields.full_name(names.regex)});
  }
  read_choices(fields, names.choice, read);
  if (auto grammar = fields.text(names.grammar)) {
    read.push_back({.kind = ConstraintKind::kLark,
                    .text = std::move(*grammar),
                    .source = fields.full_name(names.grammar)});
  }
}

const FieldList& structured_fields() {
  static constexpr std::array kRows = {
      served("json"),
      served("regex"),
      served("choice"),
      served("grammar"),
      served("json_object"),
      refused("structural_tag", "grammars and schemas hold a text"),
      refused("whitespace_pattern", "white space between parts is free"),
      refused("disable_any_whitespace", "white space between parts is free", "[false]"),
      refused("disable_additional_properties", "a schema says so itself", "[false]"),
      harmless("disable_fallback"),
      harmless("_backend"),
      harmless("_backend_was_auto"),
  };
  static const FieldList kList("structured_outputs", {kRows});
  return kList;
}

}  // namespace

std::vector<OutputConstraint> read_guided(Fields& fields) {
  std::vector<OutputConstraint> read;
  read_named(fields, {"guided_json", "guided_regex", "guided_choice", "guided_grammar"}, read);
  if (fields.boolean("guided_json_object").value_or(false)) {
    read.push_back(
        {.kind = ConstraintKind::kJsonObject, .source = fields.full_name("guided_json_object")});
  }
  const Json* structured = fields.object("structured_outputs");
  if (structured == nullptr) return read;
  Fields inner(*structured, structured_fields(), fields.full_name("structured_outputs"));
  const size_t before = read.size();
  read_named(inner, {"json", "regex", "choice", "grammar"}, read);
  if (inner.boolean("json_object").value_or(false)) {
    read.push_back({.kind = ConstraintKind::kJsonObject, .source = inner.full_name("json_object")});
  }
  const std::vector<std::string> unknown = inner.ignored();
  if (!inner.problem() && (read.size() == before || !unknown.empty())) {
    const std::string param = unknown.empty() ? inner.full_name("json") : unknown.front();
    inner.fail(bad_field(param, formatted("structured_outputs holds {}, expected one of json, "
                                          "regex, choice, grammar and json_object",
                                          json_excerpt(*structured))));
  }
  if (inner.problem()) fields.fail(*inner.problem());
  return read;
}

}  // namespace moeflux::serve
