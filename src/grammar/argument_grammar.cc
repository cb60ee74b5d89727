// Arguments: a JSON document, a tag for each parameter, or the compact spelling.
#include <algorithm>

#include "base/format.h"
#include "grammar/call_grammar.h"
#include "grammar/compact_arguments.h"
#include "grammar/schema_words.h"

namespace moeflux {
namespace {

constexpr std::string_view kArgumentGap = "/[ \\n\\r\\t]{0,8}/";

class TaggedArguments {
 public:
  TaggedArguments(const OutputFormat& format, const CallableTool& tool, LarkText& text)
      : format_(format),
        tool_(tool),
        text_(text),
        types_(ToolTypes::of_tools(
            Json::array({{{"name", tool.name}, {"parameters", tool.parameters}}}))) {}

  Result<std::string> rule() {
    if (tool_.strict) MF_RETURN_IF_ERROR(check_object());
    const Json properties = tool_.parameters.value("properties", Json::object());
    const Json required = tool_.parameters.value("required", Json::array());
    std::string all;
    for (const auto& [name, schema] : properties.items()) {
      MF_RETURN_IF_ERROR(text_.check_size(tool_.source));
      MF_ASSIGN_OR_RETURN(const std::string one, parameter(name, schema));
      const bool is_required = std::find(required.begin(), required.end(), name) != required.end();
      all += is_required ? one + " " : one + "? ";
    }
    return text_.rule("arguments", all.empty() ? "\"\"" : all);
  }

 private:
  // Rules of an object besides its properties have no place in tags.
  Status check_object() const {
    for (const auto& [key, value] : tool_.parameters.items()) {
      const bool is_known = says_nothing(key) || key == "properties" || key == "required" ||
                            (key == "additionalProperties" && value == false);
      if (!is_known) return unsupported_argument(tool_, formatted("/{}", key), key);
    }
    const Json properties = tool_.parameters.value("properties", Json::object());
    for (const Json& name : tool_.parameters.value("required", Json::array())) {
      const bool is_there = name.is_string() && properties.contains(name.get<std::string>());
      if (!is_there) return unsupported_argument(tool_, "/required", "a name without properties");
    }
    return {};
  }

  std::string key_head(const std::string& name) const {
    const std::string& open = format_.key_open.front();
    // An attribute has quotes, a name behind the tag's sign has none.
    if (opens_attribute(open)) return formatted("{}\"{}\"", open, name);
    return format_.key_close.empty() ? open + name : open + name + format_.key_close.front();
  }

  /// The rest of the key's tag, which may say whether the value is text or JSON.
  std::string tag_end(bool raw) const {
    std::string sign = format_.key_close.empty() ? ">" : "";
    if (format_.untyped == kTypeAny && format_.key_close.empty()) {
      sign = formatted(" string=\"{}\">", raw ? "true" : "false");
    }
    if (format_.value_on_lines) sign += "\n";
    std::string rest = sign.empty() ? "" : text_.spell(sign);
    if (format_.key_close.empty() || !opens_attribute(format_.key_open.front())) return rest;
    const std::string close = text_.spell("\"" + format_.key_close.front());
    if (raw) return formatted("{} {}", text_.spell(" type=\"string"), close);
    return formatted("{} /number|integer|boolean|object|array|null/ {}", text_.spell(" type=\""),
                     close);
  }

  Result<std::string> parameter(const std::string& name, const Json& schema) {
    MF_ASSIGN_OR_RETURN(const Values values, values_of(name, schema));
    const std::string gap = text_.rule("GAP", std::string(kArgumentGap));
    const std::string head = text_.spell(key_head(name));
    const std::string open = format_.value_open.empty()
                                 ? ""
                                 : formatted("{} {}", gap, text_.spell(format_.value_open.front()));
    std::string either;
    for (const bool raw : {true, false}) {
      const std::string& value = raw ? values.raw : values.json;
      if (value.empty()) continue;
      const std::string one = formatted("{} {} {} {}", head, tag_end(raw), open, value);
      if (!either.empty()) either += " | ";
      either += text_.rule("value", one);
    }
    return text_.rule("parameter", formatted("{} ({})", gap, either));
  }

  // The grammar of a value, up to its closer: text as it is, or JSON. Either may be empty.
  struct Values {
    std::string raw;
    std::string json;
  };

  Result<Values> values_of(const std::string& name, const Json& schema) {
    const std::string close = text_.spell(format_.value_close.front());
    if (schema.is_object() && schema.contains("enum")) return listed(schema["enum"], close);
    if (schema.is_object() && schema.contains("const")) {
      return listed(Json::array({schema["const"]}), close);
    }
    const TypeSet types = types_.types_of(tool_.name, name).value_or(format_.untyped);
    Values values;
    if ((types & kTypeString) != 0) {
      if (tool_.strict) MF_RETURN_IF_ERROR(check_text(name, schema));
      std::vector<std::string> stops = format_.value_close;
      stops.insert(stops.end(), format_.value_end.begin(), format_.value_end.end());
      values.raw = text_.text_until(format_.value_close.front(), stops);
      // Text that is read as another type is of one that the schema allows.
      if (types != kTypeAny) return values;
    }
    Json document = schema.is_object() ? schema : Json::object();
    for (const char* shared : {"$defs", "definitions"}) {
      if (tool_.parameters.contains(shared)) document[shared] = tool_.parameters[shared];
    }
    if (!tool_.strict && types == kTypeAny) document = Json::object();
    values.json = text_.part({.kind = ConstraintKind::kJsonSchema,
                              .text = document.dump(),
                              .source = formatted("{}#/properties/{}", tool_.source, name)}) +
                  " " + close;
    return values;
  }

  // Values that are told one by one.
  Result<Values> listed(const Json& list, const std::string& close) {
    Values values;
    for (const Json& value : list) {
      std::string& into = value.is_string() ? values.raw : values.json;
      const std::string told = value.is_string() ? value.get<std::string>() : value.dump();
      into += into.empty() ? "(" : " | ";
      into += text_.spell(told);
    }
    for (std::string* into : {&values.raw, &values.json}) {
      if (!into->empty()) *into += ") " + close;
    }
    return values;
  }

  // Text as it is can be held to nothing but its type.
  Status check_text(const std::string& name, const Json& schema) const {
    if (!schema.is_object()) return {};
    for (const auto& [key, value] : schema.items()) {
      if (says_nothing(key)) continue;
      if (key == "anyOf" || key == "oneOf") {
        const bool is_plain = std::all_of(value.begin(), value.end(), [](const Json& one) {
          return one.is_object() && one.size() == 1 && one.contains("type");
        });
        if (is_plain) continue;
      }
      return unsupported_argument(tool_, formatted("/properties/{}/{}", name, key), key);
    }
    return {};
  }

  const OutputFormat& format_;
  const CallableTool& tool_;
  LarkText& text_;
  const ToolTypes types_;
};

}  // namespace

Result<std::string> argument_rule(const OutputFormat& format, const CallableTool& tool,
                                  LarkText& text) {
  switch (format.arguments) {
    case ArgumentSyntax::kJson:
      return text.part({.kind = ConstraintKind::kJsonSchema,
                        .text = tool.parameters.dump(),
                        .source = tool.source});
    case ArgumentSyntax::kTagged:
      return TaggedArguments(format, tool, text).rule();
    case ArgumentSyntax::kCompact:
      return compact_argument_rule(tool, text);
    case ArgumentSyntax::kElements:
      return make_error(ErrorCode::kUnsupported, "{}: calls in the format {} cannot be enforced",
                        tool.source, format.name);
  }
  __builtin_unreachable();
}

}  // namespace moeflux
