#include "serve/anthropic/conversation.h"

#include <utility>

#include "base/format.h"
#include "serve/anthropic/prompt_nonces.h"
#include "serve/request/left_out_media.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

// One text as a string, several as parts.
Json content_of(Json parts) {
  if (parts.size() == 1) return std::move(parts[0]["text"]);
  return parts;
}

// Blocks that only Anthropic's own servers can read again: redacted thinking, their tools.
bool is_foreign(std::string_view type) {
  return type == "redacted_thinking" || type == "server_tool_use" || type == "mcp_tool_use" ||
         type.ends_with("_tool_result");
}

/// The text within a document, a search result or a summary of earlier messages: a string, or
/// blocks; null where it is a file.
Json text_within(const Json& block, const std::string& type) {
  if (type == "search_result" || type == "compaction") return block.value("content", Json());
  const auto source = block.find("source");
  if (type != "document" || source == block.end()) return {};
  const std::string kind(part_type(*source));
  if (kind == "text") return source->value("data", Json());
  return kind == "content" ? source->value("content", Json()) : Json();
}

}  // namespace

void BlockReader::wrong(const std::string& path, const std::string& found,
                        std::string_view expected) {
  fields_.fail(bad_field(path, formatted("{} is {}, expected {}", path, found, expected)));
}

void BlockReader::unreadable(const std::string& path, const std::string& type) {
  fields_.fail(unsupported_field(
      path, formatted("{} is of type {}, expected text: models here read nothing else", path,
                      type.empty() ? "none" : type)));
}

std::string BlockReader::text_of(const Json& block, const char* name, const std::string& path) {
  const auto text = block.find(name);
  if (text != block.end() && text->is_string()) return text->get<std::string>();
  wrong(path + "." + name, text == block.end() ? "absent" : json_excerpt(*text), "a string");
  return {};
}

void BlockReader::add_block(const Json& block, const std::string& path, bool is_question,
                            Json& parts) {
  const std::string type(part_type(block));
  if (type == "text") {
    parts.push_back(text_part(text_of(block, "text", path)));
    return;
  }
  if (type == "tool_reference") {  // what a search for tools has found
    const std::string name = text_of(block, "tool_name", path);
    parts.push_back(text_part(formatted("[the tool {} can be called]", name)));
    return;
  }
  const Json within = text_within(block, type);
  if (type == "compaction" && !within.is_string()) {
    if (!within.is_null()) wrong(path + ".content", json_excerpt(within), "a string");
    return;  // null: nothing was summed up
  }
  if (within.is_string()) {
    parts.push_back(text_part(within.get<std::string>()));
  } else if (within.is_array()) {
    for (size_t i = 0; i < within.size() && !fields_.problem(); ++i) {
      // Documents hold texts and images alone, so this goes one level down.
      const std::string at = formatted("{}.content[{}]", path, i);
      const std::string inner(part_type(within[i]));
      if (inner != "text" && inner != "image") return unreadable(at, inner);
      add_block(within[i], at, is_question, parts);
    }
  } else {
    const std::string_view kind = media_kind(type);
    if (kind.empty()) return unreadable(path, type);
    if (is_question) return fields_.fail(media_in_question(path, kind));
    parts.push_back(text_part(left_out_line(kind)));
  }
}

Json BlockReader::text_parts(const Json& content, const std::string& path, bool is_system) {
  Json parts = Json::array();
  if (content.is_string()) {
    parts.push_back(text_part(content.get<std::string>()));
  } else if (content.is_array()) {
    for (size_t i = 0; i < content.size(); ++i) {
      add_block(content[i], formatted("{}[{}]", path, i), false, parts);
    }
  } else if (!content.is_null()) {
    wrong(path, json_excerpt(content), "a string or blocks of text");
  }
  Json kept = Json::array();
  for (Json& part : parts) {
    std::string& text = part["text"].get_ref<std::string&>();
    if (is_system && options_.steady_prompts) text = without_nonces(text);
    if (!text.empty()) kept.push_back(std::move(part));
  }
  return kept;
}

void BlockReader::read_system(const Json& system) {
  Json parts = text_parts(system, "system", true);
  if (parts.empty()) return;
  messages_.push_back({{"role", "system"}, {"content", content_of(std::move(parts))}});
}

void BlockReader::flush_user(Json& parts) {
  if (parts.empty()) return;
  messages_.push_back({{"role", "user"}, {"content", content_of(std::exchange(parts, {}))}});
  parts = Json::array();
}

void BlockReader::tool_result(const Json& block, const std::string& path) {
  Json message = {{"role", "tool"}, {"tool_call_id", text_of(block, "tool_use_id", path)}};
  const auto content = block.find("content");
  Json parts = Json::array();
  if (content != block.end()) parts = text_parts(*content, path + ".content", false);
  message["content"] = parts.empty() ? Json("") : content_of(std::move(parts));
  messages_.push_back(std::move(message));
}

void BlockReader::user(const Json& content, const std::string& path, bool is_question) {
  if (!content.is_array()) {
    Json parts = text_parts(content, path, false);
    if (parts.empty()) parts.push_back(text_part(""));
    return flush_user(parts);
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = formatted("{}[{}]", path, i);
    if (part_type(content[i]) == "tool_result") {
      flush_user(parts);
      tool_result(content[i], at);
    } else {
      add_block(content[i], at, is_question, parts);
    }
  }
  flush_user(parts);
}

void BlockReader::tool_use(const Json& block, const std::string& path, Json& calls) {
  const auto input = block.find("input");
  if (input != block.end() && !input->is_object()) {
    return wrong(path + ".input", json_excerpt(*input), "an object");
  }
  const std::string arguments = input == block.end() ? "{}" : dump_json(*input);
  calls.push_back(
      {{"id", text_of(block, "id", path)},
       {"type", "function"},
       {"function", {{"name", text_of(block, "name", path)}, {"arguments", arguments}}}});
}

void BlockReader::assistant(const Json& content, const std::string& path) {
  Json message = {{"role", "assistant"}};
  std::string reasoning;
  Json calls = Json::array();
  Json parts = Json::array();
  if (content.is_array()) {
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string at = formatted("{}[{}]", path, i);
      const std::string type(part_type(content[i]));
      if (type == "thinking") {
        reasoning += text_of(content[i], "thinking", at);
      } else if (type == "tool_use") {
        tool_use(content[i], at, calls);
      } else if (!is_foreign(type)) {
        add_block(content[i], at, false, parts);
      }
    }
  } else {
    parts = text_parts(content, path, false);
  }
  if (!parts.empty()) {
    message["content"] = content_of(std::move(parts));
  } else {
    message["content"] = calls.empty() ? Json("") : Json();
  }
  if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  messages_.push_back(std::move(message));
}

// A template that has one system message would put this one into it, and change the prompt from
// there on. As the user's it stays where it is.
void BlockReader::late_system(const Json& content, const std::string& path) {
  Json parts = text_parts(content, path, true);
  if (parts.empty()) return;
  const bool stays = options_.late_system || !options_.steady_prompts || messages_.empty();
  if (stays) {
    messages_.push_back({{"role", "system"}, {"content", content_of(std::move(parts))}});
    return;
  }
  Json& last = messages_.back();
  if (last["role"] != "user") return flush_user(parts);
  Json& joined = last["content"];
  if (!joined.is_array()) joined = Json::array({{{"type", "text"}, {"text", std::move(joined)}}});
  for (Json& part : parts) joined.push_back(std::move(part));
}

void BlockReader::read_message(const Json& message, const std::string& path, bool is_question) {
  if (!message.is_object()) return wrong(path, json_excerpt(message), "an object");
  const std::string role = text_of(message, "role", path);
  if (fields_.problem()) return;
  const auto found = message.find("content");
  const Json content = found == message.end() ? Json() : *found;
  const std::string at = path + ".content";
  if (role == "user") return user(content, at, is_question);
  if (role == "assistant") return assistant(content, at);
  if (role == "system") return late_system(content, at);
  wrong(path + ".role", json_excerpt(role), "\"user\", \"assistant\" or \"system\"");
}

}  // namespace moeflux::serve
