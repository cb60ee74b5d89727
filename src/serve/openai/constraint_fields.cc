#include "serve/openai/constraint_fields.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "serve/openai/common.h"
#include "serve/wire_json.h"

namespace moeflux::serve {
namespace {

// {"type": "function", "function": {"name": NAME}}, {"type": "function", "name": NAME} or
// {"name": NAME}; empty for anything else.
std::string function_name(const Json& choice) {
  if (!choice.is_object()) return {};
  const auto inner = choice.find("function");
  const Json& holder = inner != choice.end() ? *inner : choice;
  if (!holder.is_object()) return {};
  const auto name = holder.find("name");
  return name != holder.end() && name->is_string() ? name->get<std::string>() : std::string();
}

// "required" and "auto"; false for anything else.
bool read_mode(const Json& mode, ToolRule& rule) {
  rule.required = mode == "required";
  return rule.required || mode == "auto";
}

// {"type": "allowed_tools", "mode": MODE, "tools": [...]}, perhaps one level down.
bool read_allowed(const Json& choice, ToolRule& rule) {
  const auto inner = choice.find("allowed_tools");
  const Json& holder = inner != choice.end() ? *inner : choice;
  const auto list = holder.is_object() ? holder.find("tools") : holder.end();
  if (!holder.is_object() || list == holder.end() || !list->is_array()) return false;
  if (list->empty() || !read_mode(holder.value("mode", Json("auto")), rule)) return false;
  for (const Json& tool : *list) rule.names.push_back(function_name(tool));
  return true;
}

bool read_choice(const Json& choice, ToolRule& rule) {
  if (choice.is_string()) return read_mode(choice, rule);
  if (!choice.is_object()) return false;
  if (choice.value("type", Json()) == "allowed_tools") return read_allowed(choice, rule);
  rule.required = true;
  rule.names = {function_name(choice)};
  return !rule.names.front().empty();
}

OutputConstraint read_response_format(Fields& fields, const Json* format) {
  OutputConstraint read{.source = "response_format"};
  const Json type = format->value("type", Json());
  const std::string name = type.is_string() ? type.get<std::string>() : std::string();
  if (name == "text") return read;
  if (name == "json_object") {
    read.kind = ConstraintKind::kJsonObject;
    return read;
  }
  if (name != "json_schema") {
    fields.fail(
        bad_field("response_format", formatted("response_format.type is {}, expected \"text\", "
                                               "\"json_object\" or \"json_schema\"",
                                               json_excerpt(type))));
    return read;
  }
  // llama.cpp's clients put the schema beside the type.
  const auto named = format->find("json_schema");
  const Json& holder = named != format->end() && named->is_object() ? *named : *format;
  read.source =
      named != format->end() ? "response_format.json_schema.schema" : "response_format.schema";
  const auto schema = holder.find("schema");
  if (schema == holder.end() || !(schema->is_object() || schema->is_boolean())) {
    fields.fail(bad_field(read.source, read.source + " is absent or no JSON schema"));
    return read;
  }
  read.kind = ConstraintKind::kJsonSchema;
  read.text = dump_json(*schema);
  return read;
}

}  // namespace

OutputConstraint read_constraint(Fields& fields) {
  std::vector<OutputConstraint> read;
  if (const Json* format = fields.object("response_format")) {
    read.push_back(read_response_format(fields, format));
  }
  if (const Json* schema = fields.find("json_schema")) {
    read.push_back(
        {.kind = ConstraintKind::kJsonSchema, .text = dump_json(*schema), .source = "json_schema"});
  }
  if (auto grammar = fields.text("grammar"); grammar && !grammar->empty()) {
    read.push_back(
        {.kind = ConstraintKind::kLark, .text = std::move(*grammar), .source = "grammar"});
  }
  if (auto regex = fields.text("regex")) {
    read.push_back({.kind = ConstraintKind::kRegex, .text = std::move(*regex), .source = "regex"});
  }
  std::erase_if(read, [](const auto& one) { return one.kind == ConstraintKind::kNone; });
  if (read.empty()) return {};
  if (read.size() > 1) {
    fields.fail(bad_field(read[1].source, formatted("{} and {} are both given, expected one",
                                                    read[0].source, read[1].source)));
  }
  return std::move(read.front());
}

ToolChoice read_tool_choice(Fields& fields, const Json& tools) {
  const bool is_old = !fields.has("tool_choice") && fields.has("function_call");
  const char* name = is_old ? "function_call" : "tool_choice";
  ToolChoice read;
  const Json* choice = fields.find(name);
  if (choice == nullptr) return read;
  if (*choice == "none") return {.rule = {}, .shown = false};
  if (!read_choice(*choice, read.rule)) {
    fields.fail(
        bad_field(name, formatted("{} is {}, expected \"none\", \"auto\", \"required\", the "
                                  "name of a tool or allowed_tools",
                                  name, json_excerpt(*choice))));
    return read;
  }
  if (read.rule.required && tools.is_null()) {
    fields.fail(bad_field(name, formatted("{} asks for a call, and there are no tools", name)));
  }
  std::set<std::string> names;
  for (const Json& tool : tools) names.insert(function_name(tool));
  for (const std::string& tool : read.rule.names) {
    if (names.count(tool) > 0) continue;
    fields.fail(
        bad_field(name, formatted("{} names \"{}\", which is none of the tools", name, tool)));
  }
  return read;
}

}  // namespace moeflux::serve
