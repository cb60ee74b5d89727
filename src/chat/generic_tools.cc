#include "chat/generic_tools.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace moeflux {
namespace {

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json& function_of(const Json& holder) {
  const auto function = holder.find("function");
  return function != holder.end() && function->is_object() ? *function : holder;
}

std::string told(const Json& tools) {
  std::string text = "You can call these tools:\n<tools>\n";
  for (const Json& tool : tools) {
    if (tool.is_object()) text += dumped(function_of(tool)) + "\n";
  }
  return text +
         "</tools>\nTo call one, write\n<tool_call>\n"
         "{\"name\": NAME, \"arguments\": {KEY: VALUE}}\n</tool_call>\n"
         "and read what it returns in <tool_response>. Answer in words where no tool is needed.";
}

// Text of a string or of parts, and `more` behind it.
void append(Json& content, const std::string& more) {
  if (content.is_array()) {
    content.push_back({{"type", "text"}, {"text", more}});
    return;
  }
  std::string text = content.is_string() ? content.get<std::string>() : std::string();
  if (!text.empty()) text += "\n\n";
  content = text + more;
}

std::string called(const Json& calls) {
  std::string text;
  for (const Json& call : calls) {
    if (!call.is_object()) continue;
    const Json& function = function_of(call);
    const Json arguments = function.value("arguments", Json::object());
    if (!text.empty()) text += "\n";
    text += formatted("<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                      dumped(function.value("name", Json(""))),
                      arguments.is_string() ? arguments.get<std::string>() : dumped(arguments));
  }
  return text;
}

std::string returned(const Json& content) {
  std::string text;
  if (content.is_string()) text = content.get<std::string>();
  for (const Json& part : content.is_array() ? content : Json::array()) {
    const bool has_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (has_text) text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
  }
  return formatted("<tool_response>\n{}\n</tool_response>", text);
}

bool is_of(const Json& message, const char* role) {
  return message.is_object() && message.contains("role") && message["role"] == role;
}

}  // namespace

bool needs_generic_tools(const TemplateCapabilities& takes) {
  return !takes.tools && !takes.tool_calls;
}

TemplateRequest with_generic_tools(TemplateRequest request) {
  const Json tools = std::exchange(request.tools, Json());
  if (!request.messages.is_array()) return request;
  Json messages = Json::array();
  bool follows_results = false;  // the last message is one of ours, of results
  for (Json& message : request.messages) {
    const bool is_result = is_of(message, "tool");
    if (is_of(message, "assistant") && message.contains("tool_calls")) {
      const Json calls = std::exchange(message["tool_calls"], Json());
      message.erase("tool_calls");
      if (calls.is_array() && !calls.empty()) append(message["content"], called(calls));
    }
    if (is_result) {
      const std::string text = returned(message.value("content", Json()));
      message = Json{{"role", "user"}, {"content", text}};
    }
    // Many templates want the user and the assistant in turns.
    const bool joins = follows_results && is_of(message, "user");
    follows_results = is_result;
    if (!joins) {
      messages.push_back(std::move(message));
      continue;
    }
    const Json content = message.value("content", Json());
    if (content.is_string()) append(messages.back()["content"], content.get<std::string>());
    for (const Json& part : content.is_array() ? content : Json::array()) {
      const bool has_text = part.is_object() && part.contains("text") && part["text"].is_string();
      if (has_text) append(messages.back()["content"], part["text"].get<std::string>());
    }
  }
  if (tools.is_array() && !tools.empty()) {
    const bool has_system =
        !messages.empty() && (is_of(messages[0], "system") || is_of(messages[0], "developer"));
    const Json system = {{"role", "system"}, {"content", ""}};
    if (!has_system) messages.insert(messages.begin(), system);
    append(messages[0]["content"], told(tools));
  }
  request.messages = std::move(messages);
  return request;
}

OutputFormat generic_output_format(const OutputFormat& own) {
  const OutputFormat* calls = find_output_format("tagged_json");
  MF_CHECK(calls != nullptr);
  OutputFormat format = *calls;
  format.name = kGenericFormat;
  format.reasoning_open = own.reasoning_open;
  format.reasoning_close = own.reasoning_close;
  format.dropped = own.dropped;
  return format;
}

}  // namespace moeflux
