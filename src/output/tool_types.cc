#include "output/tool_types.h"

#include <utility>

#include "base/json.h"
#include "output/value_reader.h"

namespace moeflux {
namespace {

constexpr int kSchemaDepthMax = 16;

constexpr std::pair<std::string_view, TypeSet> kTypeNames[] = {
    {"string", kTypeString},   {"integer", kTypeInteger}, {"number", kTypeNumber},
    {"boolean", kTypeBoolean}, {"null", kTypeNull},       {"object", kTypeObject},
    {"array", kTypeArray}};

TypeSet type_named(const Json& name) {
  if (!name.is_string()) return 0;
  for (const auto& [known, type] : kTypeNames) {
    if (name.get_ref<const std::string&>() == known) return type;
  }
  return 0;
}

TypeSet type_of_value(const Json& value) {
  if (value.is_string()) return kTypeString;
  if (value.is_number_integer()) return kTypeInteger;
  if (value.is_number()) return kTypeNumber;
  if (value.is_boolean()) return kTypeBoolean;
  if (value.is_null()) return kTypeNull;
  return value.is_object() ? kTypeObject : kTypeArray;
}

/// 0 where the schema says nothing.
TypeSet types_of_schema(const Json& schema, int depth) {
  if (!schema.is_object() || depth > kSchemaDepthMax) return 0;
  TypeSet types = 0;
  if (const auto type = schema.find("type"); type != schema.end()) {
    if (type->is_array()) {
      for (const Json& one : *type) types |= type_named(one);
    }
    types |= type_named(*type);
  }
  if (schema.contains("nullable") && schema["nullable"] == true) types |= kTypeNull;
  if (types != 0) return types;
  if (schema.contains("const")) return type_of_value(schema["const"]);
  if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
    for (const Json& value : *values) types |= type_of_value(value);
    if (types != 0) return types;
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto choices = schema.find(key);
    if (choices == schema.end() || !choices->is_array()) continue;
    for (const Json& choice : *choices) {
      const TypeSet of_choice = types_of_schema(choice, depth + 1);
      if (of_choice == 0) return kTypeAny;
      types |= of_choice;
    }
  }
  return types;
}

/// The whole text read as one value, or nothing.
std::optional<std::string> read_value(std::string_view text, ValueDialect dialect) {
  ValueReader reader;
  reader.start(dialect);
  std::string json;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (reader.push(text[i], &json)) {
      case ValueReader::Outcome::kMore:
        break;
      case ValueReader::Outcome::kDone:
        if (i + 1 < text.size()) return std::nullopt;
        return json;
      case ValueReader::Outcome::kDoneBefore:
      case ValueReader::Outcome::kBad:
        return std::nullopt;
    }
  }
  if (!reader.finish(&json)) return std::nullopt;
  return json;
}

TypeSet type_of_json(std::string_view json) {
  switch (json.front()) {
    case '{':
      return kTypeObject;
    case '[':
      return kTypeArray;
    case '"':
      return kTypeString;
    case 't':
    case 'f':
      return kTypeBoolean;
    case 'n':
      return kTypeNull;
    default:
      break;
  }
  const bool fraction = json.find_first_of(".eE") != std::string_view::npos;
  return fraction ? kTypeNumber : kTypeInteger | kTypeNumber;
}

std::string_view trimmed_view(std::string_view text) {
  constexpr std::string_view kTypeSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kTypeSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kTypeSpaces) + 1 - begin);
}

}  // namespace

ToolTypes ToolTypes::of_tools(const Json& tools) {
  ToolTypes types;
  if (!tools.is_array()) return types;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const Json& function = tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string() ||
        !function.contains("parameters")) {
      continue;
    }
    auto& of_tool = types.tools_[function["name"].get<std::string>()];
    const Json& parameters = function["parameters"];
    if (!parameters.is_object() || !parameters.contains("properties")) continue;
    const Json& properties = parameters["properties"];
    if (!properties.is_object()) continue;
    for (const auto& [name, schema] : properties.items()) {
      const TypeSet of_schema = types_of_schema(schema, 0);
      of_tool[name] = of_schema == 0 ? kTypeAny : of_schema;
    }
  }
  return types;
}

std::optional<TypeSet> ToolTypes::types_of(std::string_view tool,
                                           std::string_view parameter) const {
  const auto of_tool = tools_.find(tool);
  if (of_tool == tools_.end()) return std::nullopt;
  const auto found = of_tool->second.find(parameter);
  if (found == of_tool->second.end()) return std::nullopt;
  return found->second;
}

std::string typed_json(std::string_view text, TypeSet types) {
  const std::string_view value = trimmed_view(text);
  for (const ValueDialect dialect : {ValueDialect::kJson, ValueDialect::kPython}) {
    const std::optional<std::string> json = read_value(value, dialect);
    if (!json.has_value()) continue;
    const TypeSet type = type_of_json(*json);
    if (type == kTypeString) break;  // quotes are the text's own where a string is written bare
    if ((type & types) != 0) return *json;
  }
  return json_quoted(text);
}

std::string json_or_string(std::string_view text) {
  return read_value(trimmed_view(text), ValueDialect::kJson).value_or(json_quoted(text));
}

}  // namespace moeflux
