#include "templates/normalise.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

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

/// Closes an object that breaks off: {"a": "b gives {"a": "b"}.
Json closed_object(std::string_view text) {
  std::string closers;  // the innermost last
  bool in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{' || c == '[') {
      closers += c == '{' ? '}' : ']';
    } else if (!closers.empty() && c == closers.back()) {
      closers.pop_back();
    }
  }
  std::reverse(closers.begin(), closers.end());
  std::string head(text);
  if (in_text) head += '"';
  for (const char* middle : {"", "null", ":null"}) {
    const Result<Json> closed = parse_json(head + middle + closers, "arguments");
    if (closed.ok() && closed->is_object()) return *closed;
  }
  return Json::object();
}

/// Arguments as the template shows them. A model may have written none, or broken ones.
void normalise_arguments(Json& arguments, const TemplateCapabilities& takes) {
  constexpr std::string_view kSpaces = " \t\r\n";
  if (arguments.is_null()) arguments = Json::object();
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    if (text.find_first_not_of(kSpaces) == std::string::npos) {
      arguments = "{}";
    }
  }
  if (arguments.is_object() && !takes.object_arguments && takes.string_arguments) {
    arguments = spaced_json(arguments);
  }
  if (!arguments.is_string()) return;
  const Result<Json> parsed = parse_json(arguments.get_ref<const std::string&>(), "arguments");
  if (parsed.ok() && parsed->is_object()) {
    if (!takes.string_arguments) arguments = *parsed;
  } else if (!takes.broken_arguments) {
    Json closed = closed_object(arguments.get_ref<const std::string&>());
    arguments = takes.string_arguments ? Json(spaced_json(closed)) : std::move(closed);
  }
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
    normalise_arguments(*arguments, takes);
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

bool has_calls(const Json& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && calls->is_array() && !calls->empty();
}

bool has_text(const Json& message, const char* name) {
  const auto text = message.find(name);
  return text != message.end() && text->is_string() && !text->get_ref<const std::string&>().empty();
}

/// Brings reasoning, a text and calls of one message into the combination that the template takes.
/// gpt-oss's shows reasoning or a text beside calls, and refuses both.
void fit_reasoning(Json& message, const TemplateCapabilities& takes) {
  if (message["role"] != "assistant" || !has_text(message, "reasoning_content")) return;
  const auto drop = [&] {
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) message.erase(name);
  };
  if (!has_calls(message)) {
    if (!takes.answer_with_reasoning) drop();
    return;
  }
  const auto content = message.find("content");
  const bool is_empty =
      content == message.end() || content->is_null() || content->empty() || *content == "";
  if (is_empty ? takes.calls_with_reasoning : takes.calls_with_text_and_reasoning) return;
  if (is_empty || !takes.calls_with_reasoning || !content->is_string()) return drop();
  const std::string both =
      message["reasoning_content"].get<std::string>() + "\n\n" + content->get<std::string>();
  *content = "";
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (message.contains(name)) message[name] = both;
  }
}

/// The results that follow a message, by its calls' ids; those of other ids go to calls without.
Json results_of(const Json& calls, const Json& messages, size_t begin, size_t* end) {
  std::vector<Json> left;
  for (*end = begin; *end < messages.size() && messages[*end]["role"] == "tool"; ++*end) {
    left.push_back(messages[*end]);
  }
  Json by_call = Json::array();
  for (const Json& call : calls) {
    const Json id = call.is_object() && call.contains("id") ? call["id"] : Json();
    const auto found = std::find_if(left.begin(), left.end(), [&](const Json& result) {
      return !id.is_null() && result.contains("tool_call_id") && result["tool_call_id"] == id;
    });
    by_call.push_back(found == left.end() ? Json() : *found);
    if (found != left.end()) left.erase(found);
  }
  for (Json& result : by_call) {
    if (!result.is_null() || left.empty()) continue;
    result = std::move(left.front());
    left.erase(left.begin());
  }
  for (Json& more : left) by_call.push_back(std::move(more));
  return by_call;
}

/// Several calls in one message become a message and its result each.
void split_calls(Json& messages) {
  Json split = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    if (!has_calls(message) || message["tool_calls"].size() == 1) {
      split.push_back(std::move(message));
      continue;
    }
    size_t end = 0;
    const Json calls = message["tool_calls"];
    Json results = results_of(calls, messages, i + 1, &end);
    for (size_t c = 0; c < calls.size(); ++c) {
      Json one = c == 0 ? message : Json{{"role", "assistant"}, {"content", ""}};
      one["tool_calls"] = Json::array({calls[c]});
      split.push_back(std::move(one));
      if (!results[c].is_null()) split.push_back(std::move(results[c]));
    }
    for (size_t more = calls.size(); more < results.size(); ++more) {
      split.push_back(std::move(results[more]));
    }
    i = end - 1;
  }
  messages = std::move(split);
}

/// Puts text before or behind the content of a message.
Status add_text(Json& message, const Json& added, bool in_front, size_t number) {
  const auto text_of = [&](const Json& content) -> Result<std::string> {
    if (content.is_array()) return joined_parts(content, number);
    return content.is_string() ? content.get<std::string>() : std::string();
  };
  Json& content = message["content"];
  if (!content.is_string()) {
    MF_ASSIGN_OR_RETURN(std::string own, text_of(content));
    content = std::move(own);
  }
  MF_ASSIGN_OR_RETURN(const std::string more, text_of(added));
  // In place: a request may have as many of these as the context has tokens.
  auto& own = content.get_ref<std::string&>();
  const std::string_view between = own.empty() || more.empty() ? "" : "\n\n";
  if (in_front) {
    own.insert(0, more + std::string(between));
  } else {
    own.append(between).append(more);
  }
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
  if (takes.one_call_alone) split_calls(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    MF_RETURN_IF_ERROR(normalise_content(messages[i], i + 1, takes));
    MF_RETURN_IF_ERROR(normalise_calls(messages[i], i + 1, takes));
    spread_reasoning(messages[i]);
    fit_reasoning(messages[i], takes);
  }
  return {};
}

}  // namespace moeflux
