#include "serve/openai/constraint_fields.h"

#include <string>
#include <utility>

#include "base/format.h"

namespace moeflux::serve {
namespace {

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
  for (const Json& tool : *list) rule.names.push_back(tool_name(tool));
  return true;
}

bool read_choice(const Json& choice, ToolRule& rule) {
  if (choice.is_string()) return read_mode(choice, rule);
  if (!choice.is_object()) return false;
  if (choice.value("type", Json()) == "allowed_tools") return read_allowed(choice, rule);
  rule.required = true;
  rule.one = true;
  rule.names = {tool_name(choice)};
  return !rule.names.front().empty();
}

}  // namespace

OutputConstraint read_response_format(Fields& fields) {
  OutputConstraint read{.source = "response_format"};
  const Json* format = fields.object("response_format");
  if (format == nullptr) return read;
  const Json type = format->value("type", Json());
  const std::string name = type.is_string() ? type.get<std::string>() : std::string();
  if (name == "text") return read;
  // llama.cpp's clients put a schema beside either type.
  const auto named = format->find("json_schema");
  const auto beside = format->find("schema");
  const bool has_schema =
      (named != format->end() && !named->is_null()) ||
      (beside != format->end() && !beside->is_null() && *beside != Json::object());
  if (name == "json_object" && !has_schema) {
    read.kind = ConstraintKind::kJsonObject;
    return read;
  }
  if (name != "json_schema" && name != "json_object") {
    fields.fail(
        bad_field("response_format", formatted("response_format.type is {}, expected \"text\", "
                                               "\"json_object\" or \"json_schema\"",
                                               json_excerpt(type))));
    return read;
  }
  const Json& holder = named != format->end() && named->is_object() ? *named : *format;
  read.source =
      named != format->end() ? "response_format.json_schema.schema" : "response_format.schema";
  if (!has_schema && beside == format->end()) read.source = "response_format.json_schema";
  const auto schema = holder.find("schema");
  if (schema == holder.end() || !(schema->is_object() || schema->is_boolean())) {
    fields.fail(bad_field(read.source, read.source + " is absent or not a JSON schema"));
    return read;
  }
  return held_to_schema(*schema, std::move(read.source));
}

const char* tool_choice_field(const Fields& fields) {
  const bool is_old = !fields.has("tool_choice") && fields.has("function_call");
  return is_old ? "function_call" : "tool_choice";
}

ToolChoice read_tool_choice(Fields& fields, const char* field) {
  ToolChoice read;
  const Json* choice = fields.find(field);
  if (choice == nullptr) return read;
  if (*choice == "none") return {.rule = {}, .shown = false};
  if (!read_choice(*choice, read.rule)) {
    fields.fail(
        bad_field(field, formatted("{} is {}, expected \"none\", \"auto\", \"required\", the "
                                   "name of a tool or allowed_tools",
                                   field, json_excerpt(*choice))));
    return {};
  }
  return read;
}

}  // namespace moeflux::serve
