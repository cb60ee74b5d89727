#include "templates/normalise.h"

#include <string>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

Error wrong(size_t number, std::string_view what) {
  return make_error(ErrorCode::kInvalidArgument, "message {}: {}", number, what);
}

Status check_message(const Json& message, size_t number) {
  if (!message.is_object()) return wrong(number, json_excerpt(message) + ", expected an object");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) {
    return wrong(number, "no role, expected a string");
  }
  const auto content = message.find("content");
  if (content != message.end() && !content->is_string() && !content->is_array() &&
      !content->is_null()) {
    return wrong(number, formatted("content is {}, expected a string, an array of parts or null",
                                   json_excerpt(*content)));
  }
  return {};
}

/// The text of parts, one a line.
Result<std::string> joined_parts(const Json& parts, size_t number) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const bool is_text = part.is_object() && part.contains("text") && part["text"].is_string();
    if (!is_text && !part.is_string()) {
      return wrong(number, formatted("part {} of the content is {}, this template takes text only",
                                     i + 1, json_excerpt(part)));
    }
    if (i > 0) text += "\n";
    text +=
        is_text ? part["text"].get_ref<const std::string&>() : part.get_ref<const std::string&>();
  }
  return text;
}

Status normalise_content(Json& message, size_t number, const TemplateCapabilities& takes) {
  const auto content = message.find("content");
  if (content == message.end()) {
    if (!takes.absent_content) message["content"] = "";
  } else if (content->is_null()) {
    if (!takes.null_content) *content = "";
  } else if (content->is_array() && !takes.content_parts) {
    MF_ASSIGN_OR_RETURN(*content, joined_parts(*content, number));
  } else if (content->is_string() && !takes.text_content && takes.content_parts) {
    *content = Json::array({Json{{"type", "text"}, {"text", *content}}});
  }
  return {};
}

/// json.dumps(value): what models were trained to read.
std::string spaced_json(const Json& value) {
  if (value.is_array()) {
    std::string text;
    for (const Json& element : value) text += (text.empty() ? "" : ", ") + spaced_json(element);
    return "[" + text + "]";
  }
  if (value.is_object()) {
    std::string text;
    for (const auto& [key, element] : value.items()) {
      text += (text.empty() ? "" : ", ") + Json(key).dump() + ": " + spaced_json(element);
    }
    return "{" + text + "}";
  }
  return value.dump();
}

Status normalise_calls(Json& message, size_t number, const TemplateCapabilities& takes) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return {};
  if (!calls->is_array()) return wrong(number, "tool_calls, expected an array");
  for (Json& call : *calls) {
    if (!call.is_object()) return wrong(number, "a tool call, expected an object");
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object()) return wrong(number, "a call's function, expected an object");
    const auto arguments = function.find("arguments");
    if (arguments == function.end()) continue;
    if (arguments->is_string() && !takes.string_arguments) {
      const Result<Json> parsed = parse_json(arguments->get_ref<const std::string&>(), "arguments");
      if (parsed.ok() && parsed->is_object()) *arguments = *parsed;
    } else if (arguments->is_object() && !takes.object_arguments && takes.string_arguments) {
      *arguments = spaced_json(*arguments);
    }
  }
  return {};
}

/// The same reasoning under each name that templates read.
void spread_reasoning(Json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    const Json reasoning = *found;
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

/// Puts text before or behind the content of a message.
Status add_text(Json& message, const Json& added, bool in_front, size_t number) {
  const auto text_of = [&](const Json& content) -> Result<std::string> {
    if (content.is_array()) return joined_parts(content, number);
    return content.is_string() ? content.get<std::string>() : std::string();
  };
  MF_ASSIGN_OR_RETURN(const std::string own, text_of(message["content"]));
  MF_ASSIGN_OR_RETURN(const std::string more, text_of(added));
  const std::string& first = in_front ? more : own;
  const std::string& second = in_front ? own : more;
  message["content"] = first.empty() || second.empty() ? first + second : first + "\n\n" + second;
  return {};
}

Status fold_systems(Json& messages, const TemplateCapabilities& takes) {
  Json kept = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    const bool is_late = message["role"] == "system" && !kept.empty() && !takes.late_system;
    if (!is_late || !takes.system_role) {
      kept.push_back(std::move(message));
    } else if (kept[0]["role"] == "system") {
      MF_RETURN_IF_ERROR(add_text(kept[0], message["content"], false, i + 1));
    } else {
      kept.insert(kept.begin(), std::move(message));
    }
  }
  messages = std::move(kept);
  if (takes.system_role || messages.empty()) return {};
  // Without the role its text goes to the user behind it, so that what came before stays as it was.
  Json system;
  kept = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (message["role"] == "system") {
      if (system.is_null()) {
        system = std::move(message);
      } else {
        MF_RETURN_IF_ERROR(add_text(system, message["content"], false, i + 1));
      }
      continue;
    }
    if (message["role"] == "user" && !system.is_null()) {
      MF_RETURN_IF_ERROR(add_text(message, system["content"], true, i + 1));
      system = nullptr;
    }
    kept.push_back(std::move(message));
  }
  if (!system.is_null()) {
    if (!kept.empty() && kept.back()["role"] == "user") {
      MF_RETURN_IF_ERROR(add_text(kept.back(), system["content"], false, messages.size()));
    } else {
      system["role"] = "user";
      kept.push_back(std::move(system));
    }
  }
  messages = std::move(kept);
  return {};
}

}  // namespace

Status normalise_messages(Json& messages, const TemplateCapabilities& takes) {
  if (!messages.is_array()) {
    return make_error(ErrorCode::kInvalidArgument, "messages is {}, expected an array",
                      json_excerpt(messages));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    MF_RETURN_IF_ERROR(check_message(messages[i], i + 1));
    Json& role = messages[i]["role"];
    if (role == "developer" && !takes.developer_role) role = "system";
  }
  MF_RETURN_IF_ERROR(fold_systems(messages, takes));
  for (size_t i = 0; i < messages.size(); ++i) {
    MF_RETURN_IF_ERROR(normalise_content(messages[i], i + 1, takes));
    MF_RETURN_IF_ERROR(normalise_calls(messages[i], i + 1, takes));
    spread_reasoning(messages[i]);
  }
  return {};
}

}  // namespace moeflux
