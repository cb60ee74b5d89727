#include "chat/conversation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

constexpr std::array kRoles = {"system", "developer", "user", "assistant", "tool"};

bool is_text_part(const Json& part) {
  if (!part.is_object() || part.value("type", Json()) != "text") return false;
  const auto text = part.find("text");
  return text != part.end() && text->is_string();
}

bool is_text(const Json& content) {
  if (content.is_string()) return true;
  return content.is_array() && !content.empty() &&
         std::all_of(content.begin(), content.end(), is_text_part);
}

std::string text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Json& part : content) text += part["text"].get_ref<const std::string&>();
  return text;
}

}  // namespace

bool is_conversation_message(const Json& message) {
  if (!message.is_object()) return false;
  const auto role = message.find("role");
  if (role == message.end() || std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    return false;
  }
  const auto content = message.find("content");
  if (content != message.end() && is_text(*content)) return true;
  const bool is_absent = content == message.end() || content->is_null();
  const auto calls = message.find("tool_calls");
  return is_absent && *role == "assistant" && calls != message.end() && calls->is_array() &&
         !calls->empty();
}

// Templates may show a part of its own on a new line.
void append_text(Json& content, const std::string& text) {
  if (text.empty()) return;
  if (content.is_string()) {
    content.get_ref<std::string&>() += text;
    return;
  }
  if (!content.is_array() || content.empty()) {
    content = text;
    return;
  }
  Json& last = content.back();
  const auto own = last.is_object() ? last.find("text") : last.end();
  if (own != last.end() && own->is_string()) {
    own->get_ref<std::string&>() += text;
  } else {
    content.push_back({{"type", "text"}, {"text", text}});
  }
}

bool Conversation::has_system() const {
  return !messages_.empty() && messages_.front()["role"] == "system";
}

void Conversation::set_system(std::string text) {
  if (has_system()) messages_.erase(messages_.begin());
  if (text.empty()) return;
  // By value: a list of pairs would be inserted as so many elements.
  messages_.insert(messages_.begin(), Json({{"role", "system"}, {"content", std::move(text)}}));
}

void Conversation::add_user(std::string text) {
  messages_.push_back({{"role", "user"}, {"content", std::move(text)}});
}

void Conversation::add_answer(std::string content, std::string reasoning, Json calls) {
  Json message = {{"role", "assistant"}, {"content", std::move(content)}};
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  messages_.push_back(std::move(message));
}

void Conversation::continue_answer(const std::string& content, const std::string& reasoning,
                                   Json calls) {
  if (messages_.empty() || messages_.back()["role"] != "assistant") {
    return add_answer(content, reasoning, std::move(calls));
  }
  Json& message = messages_.back();
  append_text(message["content"], content);
  if (!reasoning.empty()) append_text(message["reasoning_content"], reasoning);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
}

void Conversation::clear() {
  Json kept = Json::array();
  if (has_system()) kept.push_back(messages_.front());
  messages_ = std::move(kept);
}

std::optional<std::string> Conversation::undo() {
  size_t last = messages_.size();
  while (last > 0 && messages_[last - 1]["role"] != "user") --last;
  if (last == 0) return std::nullopt;
  std::string question = text_of(messages_[last - 1]["content"]);
  while (messages_.size() >= last) messages_.erase(messages_.size() - 1);
  return question;
}

int Conversation::turns() const {
  return static_cast<int>(
      std::count_if(messages_.begin(), messages_.end(),
                    [](const Json& message) { return message["role"] == "user"; }));
}

bool Conversation::is_open() const {
  return !messages_.empty() && messages_.back()["role"] == "user";
}

std::string Conversation::to_json() const {
  return Json{{"messages", messages_}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Conversation> Conversation::parse(std::string_view text, std::string_view what) {
  MF_ASSIGN_OR_RETURN(Json json, parse_json(text, what));
  return from_json(std::move(json), what);
}

Result<Conversation> Conversation::from_json(Json json, std::string_view what) {
  if (json.is_object() && json.contains("messages")) json = Json(json["messages"]);
  if (!json.is_array()) {
    return make_error(ErrorCode::kCorruption, "{}: {}, expected messages", what,
                      json_excerpt(json));
  }
  Conversation conversation;
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& message = json[i];
    if (!is_conversation_message(message)) {
      return make_error(ErrorCode::kCorruption,
                        "{}: message {} is {}, expected a system's, developer's, user's, "
                        "assistant's or tool's text, or an assistant's tool_calls",
                        what, i + 1, json_excerpt(message));
    }
    conversation.messages_.push_back(message);
  }
  return conversation;
}

}  // namespace moeflux
