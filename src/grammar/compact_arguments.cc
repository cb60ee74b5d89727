#include "grammar/compact_arguments.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/format.h"
#include "grammar/schema_words.h"
#include "output/value_reader.h"

namespace moeflux {
namespace {

constexpr std::array<std::string_view, 5> kNumberKeys = {"minimum", "maximum", "exclusiveMinimum",
                                                         "exclusiveMaximum", "multipleOf"};
constexpr std::array<std::string_view, 6> kPartKeys = {
    "items", "minItems", "maxItems", "properties", "required", "additionalProperties"};
constexpr int64_t kItemsMax = 1000;
// Schemas in schemas, those that $ref leads to included. A level takes a KiB of stack.
constexpr int kDepthMax = 500;

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Read as a key without delimiters.
bool is_bare(std::string_view key) {
  return !key.empty() && key.find_first_of("{}[](),:\"'<> \t\n\r") == std::string_view::npos;
}

std::string delimited(std::string_view text) {
  return formatted("{0}{1}{0}", kCompactDelimiter, text);
}

std::string spelled_key(const std::string& key) { return is_bare(key) ? key : delimited(key); }

/// A value as these models write it.
std::string compact_text(const Json& value) {
  if (value.is_string()) return delimited(value.get<std::string>());
  if (!value.is_structured()) return value.dump();
  std::string all = value.is_array() ? "[" : "{";
  for (const auto& [key, one] : value.items()) {
    if (all.size() > 1) all += ',';
    if (value.is_object()) all += spelled_key(key) + ":";
    all += compact_text(one);
  }
  return all + (value.is_array() ? "]" : "}");
}

// Templates sort keys without regard to case.
std::vector<std::string> sorted_keys(const Json& object) {
  std::vector<std::pair<std::string, std::string>> keys;
  for (const auto& [key, value] : object.items()) {
    std::string lower = key;
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    keys.emplace_back(std::move(lower), key);
  }
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> sorted;
  for (auto& [lower, key] : keys) sorted.push_back(std::move(key));
  return sorted;
}

class CompactArguments {
 public:
  CompactArguments(const CallableTool& tool, LarkText& text) : tool_(tool), text_(text) {}

  Result<std::string> rule() {
    MF_RETURN_IF_ERROR(check_keys(tool_.parameters, ""));
    return object(tool_.parameters, "");
  }

 private:
  /// A strict tool's schema says nothing that is not held to.
  Status check_keys(const Json& schema, const std::string& pointer) const {
    if (!tool_.strict) return {};
    for (const auto& [key, value] : schema.items()) {
      const bool is_held =
          says_nothing(key) || is_one_of(kNumberKeys, key) || is_one_of(kPartKeys, key);
      if (!is_held) return unsupported_argument(tool_, formatted("{}/{}", pointer, key), key);
    }
    return {};
  }

  Result<std::string> value(const Json& schema, const std::string& pointer) {
    MF_RETURN_IF_ERROR(text_.check_size(tool_.source));
    if (depth_ >= kDepthMax) {
      return make_error(ErrorCode::kResourceExhausted,
                        "{}#{}: schemas nest deeper than {}, $ref included", tool_.source, pointer,
                        kDepthMax);
    }
    ++depth_;
    Result<std::string> rule = value_at(schema, pointer);
    --depth_;
    return rule;
  }

  Result<std::string> value_at(const Json& schema, const std::string& pointer) {
    if (schema == false) return unsupported_argument(tool_, pointer, "false");
    if (!schema.is_object()) return any();
    if (schema.contains("$ref")) return reference(schema, pointer);
    for (const char* key : {"enum", "const"}) {
      if (!schema.contains(key)) continue;
      return listed(schema, key, pointer);
    }
    for (const char* key : {"anyOf", "oneOf"}) {
      if (schema.contains(key)) return alternatives(schema, key, pointer);
    }
    MF_RETURN_IF_ERROR(check_keys(schema, pointer));
    Json types = schema.value("type", Json());
    if (types.is_null() && schema.contains("properties")) types = "object";
    if (types.is_null() && schema.contains("items")) types = "array";
    if (types.is_string()) types = Json::array({types});
    if (!types.is_array() || types.empty()) return any();
    std::string either;
    for (const Json& type : types) {
      MF_ASSIGN_OR_RETURN(const std::string one, typed(type, schema, pointer));
      if (!either.empty()) either += " | ";
      either += one;
    }
    return text_.rule("value", either);
  }

  Result<std::string> typed(const Json& type, const Json& schema, const std::string& pointer) {
    if (type == "string") return string();
    if (type == "array") return array(schema, pointer);
    if (type == "object") return object(schema, pointer);
    // Numbers and words are written as in JSON.
    Json scalar = {{"type", type}};
    for (const std::string_view key : kNumberKeys) {
      const auto found = schema.find(key);
      if (found != schema.end()) scalar[std::string(key)] = *found;
    }
    return text_.part({.kind = ConstraintKind::kJsonSchema,
                       .text = scalar.dump(),
                       .source = formatted("{}#{}", tool_.source, pointer)});
  }

  // Where the delimiter is a token of its own, text may not spell it either: who reads a value goes
  // by its bytes.
  std::string string() {
    if (!string_.empty()) return string_;
    const std::string delimiter(kCompactDelimiter);
    const std::string open = text_.spell(delimiter);
    std::string rest = text_.text_until(delimiter);
    if (text_.begins_with_marker(delimiter)) {
      const std::string spelled = regex_escaped(delimiter);
      rest = text_.rule("TEXT", formatted("/(?s:.*)/ & ~/(?s:.*){}(?s:.*)/", spelled)) + " " + open;
    }
    return string_ = text_.rule("string", formatted("{} {}", open, rest));
  }

  Result<std::string> array(const Json& schema, const std::string& pointer) {
    const auto found = schema.find("items");
    MF_ASSIGN_OR_RETURN(const std::string item,
                        value(found == schema.end() ? Json() : *found, pointer + "/items"));
    MF_ASSIGN_OR_RETURN(const int64_t least, count(schema, "minItems", 0, pointer));
    MF_ASSIGN_OR_RETURN(const int64_t most, count(schema, "maxItems", -1, pointer));
    if (most == 0) return text_.rule("array", R"("[" "]")");
    std::string more = formatted("(\",\" {})", item);
    const int64_t after = std::max<int64_t>(least - 1, 0);
    more += most < 0 ? formatted("{{{},}}", after) : formatted("{{{},{}}}", after, most - 1);
    const std::string_view sign = least > 0 ? "" : "?";
    return text_.rule("array", formatted(R"("[" ({} {}){} "]")", item, more, sign));
  }

  Result<int64_t> count(const Json& schema, const char* key, int64_t usual,
                        const std::string& pointer) const {
    const auto found = schema.find(key);
    if (found == schema.end()) return usual;
    const Result<int64_t> number = json_int(*found, key);
    if (number.ok() && *number >= 0 && *number <= kItemsMax) return *number;
    if (!tool_.strict) return usual;
    return unsupported_argument(tool_, formatted("{}/{}", pointer, key), json_excerpt(*found));
  }

  /// Properties behind each other, of which the first that is written has no comma before it.
  Result<std::string> object(const Json& schema, const std::string& pointer) {
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    const Json additional = schema.value("additionalProperties", Json(true));
    if (!properties.is_object() || properties.empty()) {
      if (additional == false) return text_.rule("object", R"("{" "}")");
      MF_RETURN_IF_ERROR(check_required(required, Json::object(), pointer));
      MF_ASSIGN_OR_RETURN(const std::string of_each,
                          value(additional, pointer + "/additionalProperties"));
      return free_object(of_each);
    }
    MF_RETURN_IF_ERROR(check_required(required, properties, pointer));
    std::vector<std::string> keys = sorted_keys(properties);
    std::string begin = "\"\"";  // from a property on, nothing written before
    std::string rest = "\"\"";   // the same behind another
    std::reverse(keys.begin(), keys.end());
    for (const std::string& key : keys) {
      MF_ASSIGN_OR_RETURN(const std::string one,
                          value(properties[key], formatted("{}/properties/{}", pointer, key)));
      const bool is_required = std::find(required.begin(), required.end(), key) != required.end();
      const std::string pair =
          text_.rule("pair", formatted("{} {}", text_.spell(spelled_key(key) + ":"), one));
      const std::string without = is_required ? "" : formatted(" | {}", begin);
      begin = text_.rule("begin", formatted("{} {}{}", pair, rest, without));
      rest = text_.rule("rest", formatted(R"(("," {}){} {})", pair, is_required ? "" : "?", rest));
    }
    return text_.rule("object", formatted(R"("{{" {} "}}")", begin));
  }

  Status check_required(const Json& required, const Json& properties,
                        const std::string& pointer) const {
    if (!tool_.strict) return {};
    for (const Json& name : required) {
      if (name.is_string() && properties.contains(name.get<std::string>())) continue;
      return unsupported_argument(tool_, pointer + "/required", "a name without properties");
    }
    return {};
  }

  std::string free_object(const std::string& of_each) {
    const std::string key = text_.rule("KEY", "/[A-Za-z_][A-Za-z0-9_.-]{0,63}/");
    const std::string pair = text_.rule("pair", formatted(R"({} ":" {})", key, of_each));
    return text_.rule("object", formatted(R"("{{" ({0} ("," {0})*)? "}}")", pair));
  }

  std::string any() {
    if (!any_.empty()) return any_;
    any_ = text_.reserve("any");
    const std::string scalar = text_.part({.kind = ConstraintKind::kJsonSchema,
                                           .text = R"({"type": ["number", "boolean", "null"]})",
                                           .source = tool_.source});
    const std::string object = free_object(any_);
    text_.define(any_, formatted(R"({0} | {1} | {2} | "[" ({3} ("," {3})*)? "]")", string(), scalar,
                                 object, any_));
    return any_;
  }

  Result<std::string> listed(const Json& schema, const char* key, const std::string& pointer) {
    const Json values = key == std::string_view("enum") ? schema[key] : Json::array({schema[key]});
    for (const auto& [other, value] : schema.items()) {
      if (other == key || says_nothing(other) || !tool_.strict) continue;
      return unsupported_argument(tool_, formatted("{}/{}", pointer, other), other);
    }
    std::string either;
    for (const Json& value : values) {
      if (!either.empty()) either += " | ";
      either += text_.spell(compact_text(value));
    }
    if (either.empty()) return unsupported_argument(tool_, pointer, "an empty list");
    return text_.rule("listed", either);
  }

  Result<std::string> alternatives(const Json& schema, const char* key,
                                   const std::string& pointer) {
    const Json& list = schema[key];
    if (!list.is_array() || list.empty()) return any();
    MF_RETURN_IF_ERROR(check_alternatives(schema, key, pointer));
    std::string either;
    for (size_t i = 0; i < list.size(); ++i) {
      MF_ASSIGN_OR_RETURN(const std::string one,
                          value(list[i], formatted("{}/{}/{}", pointer, key, i)));
      if (!either.empty()) either += " | ";
      either += one;
    }
    return text_.rule("either", either);
  }

  // Keywords beside alternatives are not enforced, and alternatives of oneOf must exclude each
  // other.
  Status check_alternatives(const Json& schema, const char* key, const std::string& pointer) const {
    if (!tool_.strict) return {};
    for (const auto& [other, value] : schema.items()) {
      if (other == key || (says_nothing(other) && other != "type")) continue;
      return unsupported_argument(tool_, formatted("{}/{}", pointer, other), other);
    }
    if (key == std::string_view("anyOf")) return {};
    std::vector<std::string> types;
    for (const Json& one : schema[key]) {
      const Json type = one.is_object() ? one.value("type", Json()) : Json();
      // Whole numbers are numbers.
      std::string name = type == "integer" ? "\"number\"" : type.dump();
      const bool is_new = std::find(types.begin(), types.end(), name) == types.end();
      if (!type.is_string() || !is_new) {
        return unsupported_argument(tool_, formatted("{}/oneOf", pointer),
                                    "oneOf alternatives of one type");
      }
      types.push_back(std::move(name));
    }
    return {};
  }

  /// Within the document, to what it shares or to its root.
  Result<std::string> reference(const Json& schema, const std::string& pointer) {
    const Json& target = schema["$ref"];
    const Json* found = nullptr;
    std::string name = target.is_string() ? target.get<std::string>() : "";
    if (name == "#") found = &tool_.parameters;
    for (const std::string shared : {"$defs", "definitions"}) {
      const std::string front = formatted("#/{}/", shared);
      const Json* all = tool_.parameters.contains(shared) ? &tool_.parameters[shared] : nullptr;
      if (!name.starts_with(front) || all == nullptr || !all->is_object()) continue;
      const auto one = all->find(name.substr(front.size()));
      if (one != all->end()) found = &*one;
    }
    if (found == nullptr) {
      if (!tool_.strict) return any();
      return unsupported_argument(tool_, pointer + "/$ref", json_excerpt(target));
    }
    const auto known = references_.find(name);
    if (known != references_.end()) return known->second;
    const std::string rule = references_[name] = text_.reserve("shared");
    MF_ASSIGN_OR_RETURN(const std::string body, value(*found, name.substr(1)));
    text_.define(rule, body);
    return rule;
  }

  const CallableTool& tool_;
  LarkText& text_;
  std::string string_;
  std::string any_;
  std::map<std::string, std::string> references_;
  int depth_ = 0;
};

}  // namespace

Result<std::string> compact_argument_rule(const CallableTool& tool, LarkText& text) {
  return CompactArguments(tool, text).rule();
}

}  // namespace moeflux
