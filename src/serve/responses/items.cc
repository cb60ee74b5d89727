#include "serve/responses/items.h"

#include <utility>

#include "base/format.h"
#include "serve/left_out_media.h"

namespace moeflux::serve {
namespace {

std::string type_of(const Json& value) {
  if (!value.is_object()) return {};
  const auto type = value.find("type");
  return type == value.end() || !type->is_string() ? std::string() : type->get<std::string>();
}

bool is_message(const Json& item) {
  const std::string type = type_of(item);
  return type == "message" || (type.empty() && item.is_object() && item.contains("role"));
}

Json text_part(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

}  // namespace

bool ItemReader::is_of_user(const Json& item) {
  return is_message(item) && item.value("role", Json()) == "user";
}

void ItemReader::add_system(std::string text) {
  messages_.push_back({{"role", "system"}, {"content", std::move(text)}});
}

Json ItemReader::take() {
  flush();
  return std::move(messages_);
}

Json& ItemReader::assistant() {
  if (assistant_.is_null()) assistant_ = {{"role", "assistant"}, {"content", nullptr}};
  return assistant_;
}

void ItemReader::flush() {
  if (assistant_.is_null()) return;
  if (assistant_["content"].is_null() && !assistant_.contains("tool_calls")) {
    assistant_["content"] = "";
  }
  messages_.push_back(std::exchange(assistant_, Json()));
}

std::string ItemReader::text_of(const Json& item, const char* name, const std::string& path) {
  const auto text = item.find(name);
  if (text != item.end() && text->is_string()) return text->get<std::string>();
  const std::string param = path + "." + name;
  fields_.fail(bad_field(param, formatted("{} is {}, expected a string", param,
                                          text == item.end() ? "absent" : json_excerpt(*text))));
  return {};
}

Json ItemReader::content(const Json& value, const std::string& path, bool is_question) {
  if (value.is_string()) return value;
  Json parts = Json::array();
  if (!value.is_array()) {
    fields_.fail(bad_field(path, formatted("{} is {}, expected a string or parts of text", path,
                                           json_excerpt(value))));
    return parts;
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string at = formatted("{}[{}]", path, i);
    const std::string type = type_of(value[i]);
    const std::string_view kind = media_kind(type);
    if (type == "input_text" || type == "output_text" || type == "text") {
      parts.push_back(text_part(text_of(value[i], "text", at)));
    } else if (type == "refusal") {
      parts.push_back(text_part(text_of(value[i], "refusal", at)));
    } else if (!kind.empty() && is_question) {
      fields_.fail(media_in_question(at, kind));
    } else if (!kind.empty()) {
      parts.push_back(text_part(left_out_line(kind)));
    } else {
      fields_.fail(unsupported_field(
          at, formatted("{} is of type {}, expected text: models here read nothing else", at,
                        type.empty() ? "none" : type)));
    }
  }
  if (parts.size() == 1) return std::move(parts[0]["text"]);
  return parts;
}

void ItemReader::message(const Json& item, const std::string& path, bool is_question) {
  const std::string role = text_of(item, "role", path);
  if (fields_.problem()) return;
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    const std::string param = path + ".role";
    return fields_.fail(bad_field(
        param, formatted("{} is {}, expected \"user\", \"assistant\", \"system\" or \"developer\"",
                         param, json_excerpt(item["role"]))));
  }
  const auto found = item.find("content");
  Json said = content(found == item.end() ? Json() : *found, path + ".content", is_question);
  if (role != "assistant") {
    flush();
    messages_.push_back({{"role", role}, {"content", std::move(said)}});
    return;
  }
  Json& own = assistant()["content"];
  if (own.is_null()) {
    own = std::move(said);
    return;
  }
  // Without a copy: what one turn says may come in as many items as a body has room for.
  const auto as_parts = [](Json text) -> Json {
    if (text.is_array()) return text;
    return Json::array({text_part(std::move(text.get_ref<std::string&>()))});
  };
  own = as_parts(std::move(own));
  for (Json& part : as_parts(std::move(said))) own.push_back(std::move(part));
}

void ItemReader::function_call(const Json& item, const std::string& path) {
  Json& message = assistant();
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(
      {{"id", text_of(item, "call_id", path)},
       {"type", "function"},
       {"function",
        {{"name", text_of(item, "name", path)}, {"arguments", text_of(item, "arguments", path)}}}});
}

void ItemReader::function_call_output(const Json& item, const std::string& path) {
  flush();
  const auto output = item.find("output");
  messages_.push_back(
      {{"role", "tool"},
       {"tool_call_id", text_of(item, "call_id", path)},
       {"content", content(output == item.end() ? Json() : *output, path + ".output", false)}});
}

// The text itself, else its summary; what is encrypted nobody here wrote.
void ItemReader::reasoning(const Json& item) {
  std::string text;
  for (const char* name : {"content", "summary"}) {
    const auto parts = item.find(name);
    if (!text.empty() || parts == item.end() || !parts->is_array()) continue;
    for (const Json& part : *parts) {
      if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) continue;
      text += part["text"].get_ref<const std::string&>();
    }
  }
  if (text.empty()) return;
  Json& thought = assistant()["reasoning_content"];
  if (thought.is_null()) thought = "";
  thought.get_ref<std::string&>() += text;
}

void ItemReader::read(const Json& item, const std::string& path, bool is_question) {
  if (!item.is_object()) {
    return fields_.fail(
        bad_field(path, formatted("{} is {}, expected an item", path, json_excerpt(item))));
  }
  const std::string type = type_of(item);
  if (type == "function_call") return function_call(item, path);
  if (type == "function_call_output") return function_call_output(item, path);
  if (type == "reasoning") return reasoning(item);
  if (type == "item_reference") {
    return fields_.fail(
        unsupported_field(path, formatted("{} is an item_reference, expected the item itself, or "
                                          "previous_response_id",
                                          path)));
  }
  if (is_message(item)) return message(item, path, is_question);
  if (type.empty()) {
    fields_.fail(bad_field(path, formatted("{} has no type, expected one of an item", path)));
  }
}

}  // namespace moeflux::serve
