#include "serve/anthropic/request.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "serve/anthropic/prompt_nonces.h"
#include "serve/field_names.h"
#include "serve/wire_json.h"

namespace moeflux::serve {
namespace {

constexpr int64_t kTokensMax = int64_t{1} << 40;

// Read here, ignored, or with another meaning in chat completions.
constexpr std::array<std::string_view, 19> kOwn = {
    "messages",       "system",        "max_tokens",    "max_completion_tokens",
    "stop_sequences", "stop",          "tools",         "tool_choice",
    "thinking",       "output_config", "output_format", "response_format",
    "metadata",       "mcp_servers",   "container",     "context_management",
    "service_tier",   "betas",         "cache_control"};

constexpr std::array<FieldName, 6> kNames = {{
    {"max_completion_tokens", "max_tokens"},
    {"stop", "stop_sequences"},
    {"reasoning_budget", "thinking.budget_tokens"},
    {"response_format.json_schema.schema", "output_config.format.schema"},
    {"response_format", "output_config.format"},
    {"reasoning_effort", "output_config.effort"},
}};

std::string type_of(const Json& block) {
  if (!block.is_object()) return {};
  const auto type = block.find("type");
  return type == block.end() || !type->is_string() ? std::string() : type->get<std::string>();
}

// One text as a string, several as parts.
Json content_of(Json parts) {
  if (parts.size() == 1) return std::move(parts[0]["text"]);
  return parts;
}

/// Reads a conversation into messages of chat completions.
class Conversation {
 public:
  Conversation(Fields& fields, const MessagesOptions& options)
      : fields_(fields), options_(options) {}

  void read_system(const Json& system);
  void read_message(const Json& message, const std::string& path);
  Json take() { return std::move(messages_); }

 private:
  void user(const Json& content, const std::string& path);
  void assistant(const Json& content, const std::string& path);
  void late_system(const Json& content, const std::string& path);
  void tool_result(const Json& block, const std::string& path);
  void tool_use(const Json& block, const std::string& path, Json& calls);
  /// Text of a string or of blocks of text, without nonces if it is a system's.
  Json text_parts(const Json& content, const std::string& path, bool is_system);
  void flush_user(Json& parts);
  std::string text_of(const Json& block, const char* name, const std::string& path);
  void wrong(const std::string& path, const std::string& found, const char* expected) {
    fields_.fail(bad_field(path, formatted("{} is {}, expected {}", path, found, expected)));
  }
  void unreadable(const std::string& path, const std::string& type) {
    fields_.fail(unsupported_field(
        path, formatted("{} is of type {}, expected text: models here read nothing else", path,
                        type.empty() ? "none" : type)));
  }

  Fields& fields_;
  const MessagesOptions& options_;
  Json messages_ = Json::array();
};

std::string Conversation::text_of(const Json& block, const char* name, const std::string& path) {
  const auto text = block.find(name);
  if (text != block.end() && text->is_string()) return text->get<std::string>();
  wrong(path + "." + name, text == block.end() ? "absent" : json_excerpt(*text), "a string");
  return {};
}

Json Conversation::text_parts(const Json& content, const std::string& path, bool is_system) {
  Json parts = Json::array();
  const auto add = [&](std::string text) {
    if (is_system && options_.steady_prompts) text = without_nonces(text);
    if (!text.empty()) parts.push_back({{"type", "text"}, {"text", std::move(text)}});
  };
  if (content.is_string()) {
    add(content.get<std::string>());
  } else if (content.is_array()) {
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string at = formatted("{}[{}]", path, i);
      const std::string type = type_of(content[i]);
      if (type != "text") {
        unreadable(at, type);
      } else {
        add(text_of(content[i], "text", at));
      }
    }
  } else if (!content.is_null()) {
    wrong(path, json_excerpt(content), "a string or blocks of text");
  }
  return parts;
}

void Conversation::read_system(const Json& system) {
  Json parts = text_parts(system, "system", true);
  if (parts.empty()) return;
  messages_.push_back({{"role", "system"}, {"content", content_of(std::move(parts))}});
}

void Conversation::flush_user(Json& parts) {
  if (parts.empty()) return;
  messages_.push_back({{"role", "user"}, {"content", content_of(std::exchange(parts, {}))}});
  parts = Json::array();
}

void Conversation::tool_result(const Json& block, const std::string& path) {
  Json message = {{"role", "tool"}, {"tool_call_id", text_of(block, "tool_use_id", path)}};
  const auto content = block.find("content");
  Json parts = Json::array();
  if (content != block.end()) parts = text_parts(*content, path + ".content", false);
  message["content"] = parts.empty() ? Json("") : content_of(std::move(parts));
  messages_.push_back(std::move(message));
}

void Conversation::user(const Json& content, const std::string& path) {
  if (!content.is_array()) {
    Json parts = text_parts(content, path, false);
    if (parts.empty()) parts.push_back({{"type", "text"}, {"text", ""}});
    return flush_user(parts);
  }
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = formatted("{}[{}]", path, i);
    const std::string type = type_of(content[i]);
    if (type == "tool_result") {
      flush_user(parts);
      tool_result(content[i], at);
    } else if (type == "text") {
      parts.push_back({{"type", "text"}, {"text", text_of(content[i], "text", at)}});
    } else {
      unreadable(at, type);
    }
  }
  flush_user(parts);
}

void Conversation::tool_use(const Json& block, const std::string& path, Json& calls) {
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

// What only Anthropic's own servers can read again (redacted thinking, their tools) is left out.
void Conversation::assistant(const Json& content, const std::string& path) {
  Json message = {{"role", "assistant"}};
  std::string reasoning;
  Json calls = Json::array();
  Json parts = Json::array();
  if (content.is_array()) {
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string at = formatted("{}[{}]", path, i);
      const std::string type = type_of(content[i]);
      if (type == "text") {
        parts.push_back({{"type", "text"}, {"text", text_of(content[i], "text", at)}});
      } else if (type == "thinking") {
        reasoning += text_of(content[i], "thinking", at);
      } else if (type == "tool_use") {
        tool_use(content[i], at, calls);
      } else if (type.empty() || type == "image") {
        unreadable(at, type);
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
void Conversation::late_system(const Json& content, const std::string& path) {
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

void Conversation::read_message(const Json& message, const std::string& path) {
  if (!message.is_object()) return wrong(path, json_excerpt(message), "an object");
  const std::string role = text_of(message, "role", path);
  if (fields_.problem()) return;
  const auto found = message.find("content");
  const Json content = found == message.end() ? Json() : *found;
  const std::string at = path + ".content";
  if (role == "user") return user(content, at);
  if (role == "assistant") return assistant(content, at);
  if (role == "system") return late_system(content, at);
  wrong(path + ".role", json_excerpt(role), "\"user\", \"assistant\" or \"system\"");
}

void read_conversation(Fields& fields, const MessagesOptions& options, Json& chat) {
  Conversation conversation(fields, options);
  if (const Json* system = fields.find("system")) conversation.read_system(*system);
  const Json* messages = fields.array("messages");
  if (messages == nullptr || messages->empty()) {
    return fields.fail(bad_field("messages", "messages is absent or empty, expected messages"));
  }
  for (size_t i = 0; i < messages->size() && !fields.problem(); ++i) {
    conversation.read_message((*messages)[i], formatted("messages[{}]", i));
  }
  // A last text of the assistant is continued; its calls want results.
  chat["messages"] = conversation.take();
  const Json& all = chat["messages"];
  if (!all.empty() && all.back().contains("tool_calls")) {
    fields.fail(unsupported_field(
        "messages", "messages end with the assistant's tool_use, expected its tool_result"));
  }
}

// Tools that Anthropic's servers run are left out, by name.
void read_tools(Fields& fields, Json& chat, std::vector<std::string>& dropped) {
  const Json* given = fields.array("tools");
  Json tools = Json::array();
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    const Json& tool = (*given)[i];
    Fields one(tool, formatted("tools[{}]", i));
    const std::string type = one.text("type").value_or("custom");
    const auto name = one.text("name");
    const auto description = one.text("description");
    const Json* schema = one.object("input_schema");
    const bool strict = one.boolean("strict").value_or(false);
    if (!one.problem() && type != "custom") {
      dropped.push_back(type);
      continue;
    }
    if (!name) one.fail(bad_field(one.full_name("name"), one.full_name("name") + " is absent"));
    if (one.problem()) return fields.fail(*one.problem());
    Json function = {{"name", *name}};
    if (description) function["description"] = *description;
    function["parameters"] = schema == nullptr ? Json::object() : *schema;
    if (strict) function["strict"] = true;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  if (!tools.empty()) chat["tools"] = std::move(tools);
}

void read_tool_choice(Fields& fields, Json& chat) {
  const Json* given = fields.object("tool_choice");
  if (given == nullptr) return;
  Fields choice(*given, "tool_choice");
  const std::string type = choice.text("type").value_or("");
  if (type == "auto" || type == "none") {
    chat["tool_choice"] = type;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type == "tool") {
    chat["tool_choice"] = {{"type", "function"},
                           {"function", {{"name", choice.text("name").value_or("")}}}};
  } else {
    choice.fail(bad_field(
        "tool_choice.type",
        formatted("tool_choice.type is {}, expected auto, any, tool or none", json_excerpt(type))));
  }
  if (choice.boolean("disable_parallel_tool_use").value_or(false)) {
    chat["parallel_tool_calls"] = false;
  }
  if (choice.problem()) fields.fail(*choice.problem());
}

// Who does not ask for thinking gets none, as from Anthropic, where the model can do without.
void read_thinking(Fields& fields, Json& chat) {
  std::string type = "disabled";
  if (const Json* given = fields.object("thinking")) {
    Fields thinking(*given, "thinking");
    type = thinking.text("type").value_or("");
    if (const auto budget = thinking.integer("budget_tokens", {0, kTokensMax})) {
      chat["reasoning_budget"] = *budget;
    }
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      thinking.fail(
          bad_field("thinking.type", formatted("thinking.type is {}, expected enabled, disabled or "
                                               "adaptive",
                                               json_excerpt(type))));
    }
    if (thinking.problem()) return fields.fail(*thinking.problem());
  }
  Json& variables = chat["chat_template_kwargs"];
  if (variables.is_null()) variables = Json::object();
  if (variables.is_object() && !variables.contains("enable_thinking")) {
    variables["enable_thinking"] = type != "disabled";
  }
}

void read_output(Fields& fields, Json& chat) {
  const Json* format = fields.object("output_format");  // its name while it was a beta
  if (const Json* given = fields.object("output_config")) {
    Fields config(*given, "output_config");
    if (const auto effort = config.text("effort")) chat["reasoning_effort"] = *effort;
    if (const Json* inner = config.object("format")) format = inner;
    if (config.problem()) return fields.fail(*config.problem());
  }
  if (format == nullptr) return;
  Fields inner(*format, "output_config.format");
  const std::string type = inner.text("type").value_or("");
  const Json* schema = inner.object("schema");
  if (inner.problem()) return fields.fail(*inner.problem());
  if (type != "json_schema" || schema == nullptr) {
    return fields.fail(bad_field("output_config.format",
                                 "output_config.format, expected type json_schema and a schema"));
  }
  chat["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "output"}, {"strict", true}, {"schema", *schema}}}};
}

}  // namespace

DecodedChat decode_messages_request(const Json& body, const RequestDefaults& defaults,
                                    const MessagesOptions& options) {
  Fields fields(body);
  Json chat = shared_fields(body, kOwn);
  std::vector<std::string> dropped;
  read_conversation(fields, options, chat);
  if (const auto tokens_max = fields.integer("max_tokens", {1, kTokensMax})) {
    chat["max_completion_tokens"] = *tokens_max;
  } else if (!options.counts_only) {
    fields.fail(bad_field("max_tokens", "max_tokens is absent, expected a number of tokens"));
  }
  if (const Json* stop = fields.array("stop_sequences")) chat["stop"] = *stop;
  read_tools(fields, chat, dropped);
  // Without its tools a choice among them says nothing.
  if (chat.contains("tools")) read_tool_choice(fields, chat);
  read_thinking(fields, chat);
  read_output(fields, chat);
  if (fields.problem()) return *fields.problem();
  DecodedChat decoded = decode_translated(chat, defaults, kNames);
  if (auto* request = std::get_if<ChatRequest>(&decoded)) {
    request->dropped_tools = std::move(dropped);
  }
  return decoded;
}

}  // namespace moeflux::serve
