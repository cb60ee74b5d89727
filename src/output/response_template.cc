#include "output/response_template.h"

#include <optional>
#include <utility>

#include "base/format.h"
#include "base/json.h"

namespace moeflux {
namespace {

constexpr std::string_view kGroupOpen = "(?P<";

Error unsupported(std::string_view what, std::string_view field, std::string_view found,
                  std::string_view expected) {
  return make_error(ErrorCode::kUnsupported, "{}: response_template: {}: {}, expected {}", what,
                    field, found, expected);
}

std::string string_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Without white space around it, which is skipped between all parts of a call anyhow.
std::string without_spaces(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin));
}

/// A string or a list of strings; nothing where there is something else, or only white space.
std::optional<std::vector<std::string>> literals(const Json& field, const char* key) {
  std::vector<std::string> texts;
  const auto found = field.find(key);
  if (found == field.end() || found->is_null()) return texts;
  const Json list = found->is_string() ? Json::array({*found}) : *found;
  if (!list.is_array()) return std::nullopt;
  for (const Json& text : list) {
    if (!text.is_string()) return std::nullopt;
    texts.push_back(without_spaces(text.get_ref<const std::string&>()));
    if (texts.back().empty()) return std::nullopt;
  }
  return texts;
}

/// A piece of a pattern: literal text, or a named group.
struct Part {
  std::string text;
  bool group = false;
};

/// Literals and groups of a pattern; optional white space between them is left out, since it is
/// skipped anyhow. Nothing for a pattern that has more.
std::optional<std::vector<Part>> parts_of(std::string_view pattern) {
  std::vector<Part> parts;
  bool joins = false;
  while (!pattern.empty()) {
    if (pattern.starts_with("\\s*") || pattern.starts_with("\\s+")) {
      pattern.remove_prefix(3);
      joins = false;
      continue;
    }
    if (pattern.starts_with(kGroupOpen)) {
      const size_t name_end = pattern.find('>');
      if (name_end == std::string_view::npos) return std::nullopt;
      const std::string_view name = pattern.substr(4, name_end - 4);
      size_t inside = 0;
      for (const std::string_view words : {"\\w+)", "[^>]+)", ".*?)", ".+?)", "[\\w.-]+)"}) {
        if (pattern.substr(name_end + 1).starts_with(words)) inside = words.size();
      }
      if (inside == 0) return std::nullopt;
      parts.push_back({std::string(name), true});
      pattern.remove_prefix(name_end + 1 + inside);
      joins = false;
      continue;
    }
    char c = pattern.front();
    pattern.remove_prefix(1);
    if (c == '\\') {
      if (pattern.empty()) return std::nullopt;
      c = pattern.front();
      pattern.remove_prefix(1);
      const bool letter =
          (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (letter && c != 'n') return std::nullopt;
      if (c == 'n') c = '\n';
    } else if (std::string_view(".*+?()[]{}^$|").find(c) != std::string_view::npos) {
      return std::nullopt;
    }
    if (!joins) parts.emplace_back();
    parts.back().text += c;
    joins = true;
  }
  for (Part& part : parts) part.text = without_spaces(part.text);
  std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
  return parts;
}

bool is_group(const std::vector<Part>& parts, size_t i, std::string_view name) {
  return i < parts.size() && parts[i].group && parts[i].text == name;
}

/// "{content}" -> "content"; nothing for what is no such string.
std::string variable(const Json& value) {
  if (!value.is_string()) return {};
  const auto text = value.get<std::string>();
  if (text.size() < 3 || text.front() != '{' || text.back() != '}') return {};
  return text.substr(1, text.size() - 2);
}

class Compiler {
 public:
  explicit Compiler(std::string_view what) : what_(what) { format_.name = "response_template"; }

  Result<OutputFormat> compile(const Json& spec) {
    const auto fields = spec.is_object() ? spec.find("fields") : spec.end();
    if (!spec.is_object() || fields == spec.end() || !fields->is_object()) {
      return unsupported(what_, "fields", json_excerpt(spec), "an object");
    }
    if (const auto version = spec.find("version"); version != spec.end() && *version != 1) {
      return unsupported(what_, "version", json_excerpt(*version), "1");
    }
    for (const auto& [name, field] : fields->items()) {
      if (!field.is_object()) return unsupported(what_, name, json_excerpt(field), "an object");
      MF_RETURN_IF_ERROR(read_field(name, field));
    }
    return std::move(format_);
  }

 private:
  Status read_field(const std::string& name, const Json& field) {
    if (name == "tool_calls") return read_calls(field);
    const auto open = literals(field, "open");
    const auto close = literals(field, "close");
    if (field.contains("open_pattern") || field.contains("close_pattern") || !open || !close) {
      return unsupported(what_, name, "a pattern", "literals around it");
    }
    const std::string content = string_of(field, "content");
    if (!content.empty() && content != "text") {
      return unsupported(what_, name, "content " + content, "text");
    }
    if (name == "content") {
      for (const auto& texts : {*open, *close}) {
        format_.dropped.insert(format_.dropped.end(), texts.begin(), texts.end());
      }
      return {};
    }
    const bool reasoning = name == "thinking" || name == "reasoning" || name == "reasoning_content";
    if (!reasoning) return unsupported(what_, name, "a field", "reasoning, content or tool_calls");
    if (open->empty() || close->empty()) {
      return unsupported(what_, name, "no opener or closer", "both");
    }
    format_.reasoning_open = *open;
    format_.reasoning_close = *close;
    return {};
  }

  Status read_calls(const Json& field) {
    const auto open = literals(field, "open");
    const auto close = literals(field, "close");
    if (!open || !close || field.contains("close_pattern")) {
      return unsupported(what_, "tool_calls", "a closing pattern", "literals");
    }
    format_.call_open = *open;
    format_.call_close = *close;
    const std::string content = string_of(field, "content");
    if (content == "json") return read_json_calls(field);
    if (content == "xml-inline") return read_tagged_calls(field);
    return unsupported(what_, "tool_calls", "content " + content, "json or xml-inline");
  }

  static Json arguments_of_content(const Json& field) {
    const auto args = field.find("content_args");
    return args != field.end() && args->is_object() ? *args : Json::object();
  }

  /// Whether JSON is in the compact spelling; an error for one that we have no reader for.
  Result<bool> is_compact(const Json& args) {
    const bool bare_keys = args.contains("unquoted_keys") && args["unquoted_keys"] == true;
    const auto delimiters = args.find("string_delims");
    if (delimiters == args.end() || delimiters->is_null()) return bare_keys;
    if (*delimiters != Json::array({Json::array({"<|\"|>", "<|\"|>"})})) {
      return unsupported(what_, "tool_calls", "string_delims " + json_excerpt(*delimiters),
                         "<|\"|> on both sides");
    }
    return true;
  }

  /// The transform's function, or what stands for it.
  static Json function_of(const Json& field) {
    const auto transform = field.find("transform");
    if (transform == field.end() || !transform->is_object()) return Json();
    const auto function = transform->find("function");
    return function == transform->end() ? *transform : *function;
  }

  Status read_json_calls(const Json& field) {
    MF_ASSIGN_OR_RETURN(const bool compact, is_compact(arguments_of_content(field)));
    if (field.contains("open_pattern")) {
      MF_RETURN_IF_ERROR(read_named_opener(field));
      if (compact) format_.arguments = ArgumentSyntax::kCompact;
      return {};
    }
    if (compact) {
      return unsupported(what_, "tool_calls", "keys or strings of its own", "a name before them");
    }
    if (format_.call_open.empty()) return unsupported(what_, "tool_calls", "no opener", "one");
    format_.takes_json = true;
    const Json function = function_of(field);
    if (function.is_null() || variable(function) == "content") return {};
    const std::string name = function.is_object() ? variable(function.value("name", Json())) : "";
    const std::string arguments =
        function.is_object() ? variable(function.value("arguments", Json())) : "";
    if (name.empty() || arguments.empty()) {
      return unsupported(what_, "tool_calls", "transform " + json_excerpt(function),
                         "a name and arguments of the content");
    }
    format_.name_keys = {name.substr(name.rfind('.') + 1)};
    format_.argument_keys = {arguments.substr(arguments.rfind('.') + 1)};
    return {};
  }

  /// [section's opener \s*] opener name [closer]
  Status read_named_opener(const Json& field) {
    const Json function = function_of(field);
    if (function.is_object() && (variable(function.value("name", Json())) != "name" ||
                                 variable(function.value("arguments", Json())) != "content")) {
      return unsupported(what_, "tool_calls", "transform " + json_excerpt(function),
                         "name and content as they are");
    }
    const std::string pattern = string_of(field, "open_pattern");
    const auto parts = parts_of(pattern);
    const size_t name = parts && is_group(*parts, 2, "name") ? 2 : 1;
    if (!parts || !is_group(*parts, name, "name") || (name == 2 && (*parts)[0].group) ||
        (*parts)[name - 1].group || parts->size() > name + 2 ||
        (parts->size() == name + 2 && parts->back().group)) {
      return unsupported(what_, "tool_calls", "open_pattern " + pattern,
                         "literals around a group \"name\"");
    }
    format_.takes_named = true;
    format_.call_open = {(*parts)[name - 1].text};
    if (name == 2) {
      format_.section_open = {(*parts)[0].text};
      format_.section_close = std::exchange(format_.call_close, {});
    }
    if (parts->size() == name + 2) {
      std::string closer = parts->back().text;
      format_.name_in_tag = closer.ends_with('>') && closer.find('<') == std::string::npos;
      if (!format_.name_in_tag && closer != "{") format_.name_close = {std::move(closer)};
    }
    return {};
  }

  Status read_tagged_calls(const Json& field) {
    MF_RETURN_IF_ERROR(read_named_opener(field));
    const Json args = arguments_of_content(field);
    if (args.contains("merge_duplicates") && args["merge_duplicates"] == true) {
      return unsupported(what_, "tool_calls", "merge_duplicates", "each key once");
    }
    const std::string pattern = string_of(args, "tag_pattern");
    const auto parts = parts_of(pattern);
    const bool fits = parts && parts->size() >= 5 && parts->size() <= 6 && !(*parts)[0].group &&
                      is_group(*parts, 1, "key") && !(*parts)[2].group &&
                      is_group(*parts, parts->size() - 2, "value") && !parts->back().group &&
                      !(*parts)[parts->size() - 3].group;
    if (!fits) {
      return unsupported(what_, "tool_calls", "tag_pattern " + pattern,
                         "literals around groups \"key\" and \"value\"");
    }
    format_.arguments = ArgumentSyntax::kTagged;
    format_.key_open = {(*parts)[0].text};
    format_.value_close = {"\n" + parts->back().text, parts->back().text};
    format_.value_on_lines = true;
    if (parts->size() == 6) {
      format_.key_close = {(*parts)[2].text};
      format_.value_open = {(*parts)[3].text};
    } else {
      // One literal between the two: the tag's end, or a key's closer with a value's opener.
      const std::string& between = (*parts)[2].text;
      const size_t opener = between.rfind('<');
      if (opener != std::string::npos && opener > 0) {
        format_.key_close = {between.substr(0, opener)};
        format_.value_open = {between.substr(opener)};
      } else if (!between.ends_with('>')) {
        return unsupported(what_, "tool_calls", "tag_pattern " + pattern, "tags that end with >");
      }
    }
    const auto parser = args.find("value_parser");
    const bool json =
        parser != args.end() && parser->is_object() && string_of(*parser, "name") == "json";
    format_.untyped = json ? kTypeAny : TypeSet{kTypeString};
    // A name's tag may have a closer that the template, which reads tags only, does not tell.
    if (format_.call_close.empty()) {
      const std::string& opener = format_.call_open.front();
      const size_t name_end = opener.find_first_of("= ");
      if (opener.starts_with('<') && name_end != std::string::npos) {
        format_.call_close = {"</" + opener.substr(1, name_end - 1) + ">"};
      }
    }
    return {};
  }

  std::string_view what_;
  OutputFormat format_;
};

}  // namespace

Result<OutputFormat> compile_response_template(const Json& response_template,
                                               std::string_view what) {
  return Compiler(what).compile(response_template);
}

}  // namespace moeflux
