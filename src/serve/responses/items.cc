#include "serve/responses/items.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "serve/request/left_out_media.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

bool is_message(const Json& item) {
  const std::string type(part_type(item));
  return type == "message" || (type.empty() && item.is_object() && item.contains("role"));
}

/// A call of one of OpenAI's tools that clients run.
struct BuiltinCall {
  std::string_view type;
  std::string_view tool;
  const char* arguments;  // an object
};

constexpr std::array<BuiltinCall, 4> kBuiltinCalls = {{
    {"local_shell_call", "local_shell", "action"},
    {"shell_call", "shell", "action"},
    {"apply_patch_call", "apply_patch", "operation"},
    {"computer_call", "computer", "action"},
}};

constexpr std::array<std::string_view, 4> kBuiltinOutputs = {
    "local_shell_call_output", "shell_call_output", "apply_patch_call_output",
    "computer_call_output"};

// Items in which OpenAI's servers record what they did. Results lie within, are encrypted, or are
// told in the message behind them.
constexpr std::array<std::string_view, 12> kForeign = {
    "web_search_call",       "file_search_call", "code_interpreter_call",
    "image_generation_call", "mcp_list_tools",   "mcp_approval_request",
    "mcp_approval_response", "mcp_call",         "tool_search_call",
    "tool_search_output",    "compaction",       "compaction_summary",
};

template <size_t kSize>
bool is_among(const std::array<std::string_view, kSize>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

const BuiltinCall* builtin_call_of(std::string_view type) {
  const auto found = std::find_if(kBuiltinCalls.begin(), kBuiltinCalls.end(),
                                  [&](const BuiltinCall& one) { return one.type == type; });
  return found == kBuiltinCalls.end() ? nullptr : &*found;
}

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
    const std::string type(part_type(value[i]));
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
  add_assistant_text(std::move(said));
}

void ItemReader::add_assistant_text(Json said) {
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

void ItemReader::add_call(std::string id, std::string name, std::string arguments) {
  Json& message = assistant();
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(
      {{"id", std::move(id)},
       {"type", "function"},
       {"function", {{"name", std::move(name)}, {"arguments", std::move(arguments)}}}});
}

void ItemReader::function_call(const Json& item, const std::string& path) {
  std::string id = text_of(item, "call_id", path);
  std::string name = text_of(item, "name", path);
  add_call(std::move(id), std::move(name), text_of(item, "arguments", path));
}

// Its input is a text of any kind; templates know arguments by name.
void ItemReader::custom_call(const Json& item, const std::string& path) {
  std::string id = text_of(item, "call_id", path);
  std::string name = text_of(item, "name", path);
  add_call(std::move(id), std::move(name), dump_json({{"input", text_of(item, "input", path)}}));
}

void ItemReader::builtin_call(const Json& item, const std::string& path) {
  const BuiltinCall& call = *builtin_call_of(part_type(item));
  const auto arguments = item.find(call.arguments);
  if (arguments == item.end() || !arguments->is_object()) {
    const std::string param = formatted("{}.{}", path, call.arguments);
    const std::string found = arguments == item.end() ? "absent" : json_excerpt(*arguments);
    return fields_.fail(bad_field(param, formatted("{} is {}, expected an object", param, found)));
  }
  add_call(text_of(item, "call_id", path), std::string(call.tool), dump_json(*arguments));
}

// OpenAI's local_shell_call_output has the call's id as its own. Outputs are a text, an object that
// is an image, or a list of what commands wrote, which stays as it is.
void ItemReader::builtin_output(const Json& item, const std::string& path) {
  flush();
  const bool is_own = part_type(item) == "local_shell_call_output" && !item.contains("call_id");
  const auto found = item.find("output");
  Json output = found == item.end() ? Json("") : *found;
  if (output.is_array()) output = dump_json(output);
  if (output.is_object()) output = Json::array({std::move(output)});
  messages_.push_back({{"role", "tool"},
                       {"tool_call_id", text_of(item, is_own ? "id" : "call_id", path)},
                       {"content", content(output, path + ".output", false)}});
}

// Codex tells what happened meanwhile as the output of a tool that nobody has called.
void ItemReader::function_call_output(const Json& item, const std::string& path) {
  flush();
  const bool is_uncalled = !item.contains("call_id") && item.contains("name");
  const auto output = item.find("output");
  messages_.push_back(
      {{"role", "tool"},
       {"tool_call_id", text_of(item, is_uncalled ? "name" : "call_id", path)},
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
  const std::string type(part_type(item));
  if (type == "function_call") return function_call(item, path);
  if (type == "custom_tool_call") return custom_call(item, path);
  if (type == "function_call_output" || type == "custom_tool_call_output") {
    return function_call_output(item, path);
  }
  if (builtin_call_of(type) != nullptr) return builtin_call(item, path);
  if (is_among(kBuiltinOutputs, type)) return builtin_output(item, path);
  if (type == "reasoning") return reasoning(item);
  if (type == "item_reference") {
    return fields_.fail(
        unsupported_field(path, formatted("{} is an item_reference, expected the item itself, or "
                                          "previous_response_id",
                                          path)));
  }
  if (is_among(kForeign, type)) return add_assistant_text(left_out_foreign_line(type));
  const Json given = item.value("type", Json());
  if (given.is_null() && !item.contains("role")) {
    return fields_.fail(
        bad_field(path, formatted("{} has no type, expected one of an item", path)));
  }
  if (given.is_null() || type == "message") return message(item, path, is_question);
  const std::string param = path + ".type";
  fields_.fail(bad_field(
      param, formatted("{} is {}, expected the type of an item, as \"message\", \"function_call\" "
                       "or \"function_call_output\"",
                       param, json_excerpt(given))));
}

}  // namespace moeflux::serve
