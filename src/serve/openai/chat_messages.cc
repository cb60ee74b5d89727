#include "serve/openai/chat_messages.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "serve/request/left_out_media.h"

namespace moeflux::serve {
namespace {

constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                    "assistant", "tool",      "function"};

std::string text_at(const Json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  return found == object.end() || !found->is_string() ? std::string() : found->get<std::string>();
}

constexpr std::string_view kArguments = "a JSON object's text";

class ChatMessages {
 public:
  explicit ChatMessages(Fields& fields) : fields_(fields) {}

  Json read(const Json& given) {
    for (size_t m = 0; m < given.size(); ++m) {
      if (text_at(given[m], "role") == "user") question_ = m;
    }
    Json messages = Json::array();
    for (size_t m = 0; m < given.size() && !fields_.problem(); ++m) {
      messages.push_back(message(given[m], m));
    }
    return messages;
  }

 private:
  void wrong(std::string param, const Json& found, std::string_view expected) {
    std::string message = formatted("{} is {}, expected {}", param,
                                    found.is_null() ? "absent" : json_excerpt(found), expected);
    fields_.fail(bad_field(std::move(param), std::move(message)));
  }

  Json message(const Json& given, size_t m) {
    const std::string path = formatted("messages[{}]", m);
    if (!given.is_object()) {
      wrong(path, given, "an object");
      return {};
    }
    const Json role = given.value("role", Json());
    const bool is_known =
        role.is_string() &&
        std::find(kRoles.begin(), kRoles.end(), role.get_ref<const std::string&>()) != kRoles.end();
    if (!is_known) {
      wrong(path + ".role", role, "system, developer, user, assistant or tool");
      return {};
    }
    Json read = given;
    if (role == "assistant") take_call(read, path);
    if (role == "assistant") check_calls(read, path);
    if (role == "function") take_result(read);
    if (role == "assistant" && read.contains("content")) take_thoughts(read);
    if (read.contains("content")) take_content(read["content"], path + ".content", m);
    if (role == "assistant") take_refusal(read);
    if (role == "assistant") take_audio(read);
    take_images(read, path, m);
    return read;
  }

  // Behind what the message says.
  static void add_line(Json& message, std::string line) {
    Json& content = message["content"];
    if (content.is_array()) {
      content.push_back({{"type", "text"}, {"text", std::move(line)}});
    } else if (content.is_string() && content != "") {
      content.get_ref<std::string&>() += "\n" + line;
    } else {
      content = std::move(line);
    }
  }

  // OpenAI's answers have a refusal in place of a content.
  static void take_refusal(Json& message) {
    std::string refusal = text_at(message, "refusal");
    message.erase("refusal");
    const Json content = message.value("content", Json());
    if (!refusal.empty() && (content.is_null() || content == "")) {
      message["content"] = std::move(refusal);
    }
  }

  // An answer that was spoken: its id says nothing here, its transcript does.
  static void take_audio(Json& message) {
    const auto audio = message.find("audio");
    if (audio == message.end()) return;
    const bool is_spoken = audio->is_object();
    std::string said = text_at(*audio, "transcript");
    message.erase(audio);
    if (is_spoken) add_line(message, said.empty() ? left_out_line("audio") : std::move(said));
  }

  // Ollama's form.
  void take_images(Json& message, const std::string& path, size_t m) {
    const auto found = message.find("images");
    if (found == message.end()) return;
    const Json images = std::exchange(*found, nullptr);
    message.erase("images");
    if (images.is_null()) return;
    if (!images.is_array()) return wrong(path + ".images", images, "an array");
    if (!images.empty() && m == question_) {
      return fields_.fail(media_in_question(path + ".images", "image"));
    }
    for (size_t i = 0; i < images.size(); ++i) add_line(message, left_out_line("image"));
  }

  // The old interface has one call in a message, without an id.
  void take_call(Json& message, const std::string& path) {
    const auto found = message.find("function_call");
    if (found == message.end()) return;
    const Json call = std::exchange(*found, nullptr);
    message.erase("function_call");
    if (call.is_null()) return;
    if (text_at(call, "name").empty()) return wrong(path + ".function_call", call, "a named call");
    if (!has_arguments(call)) return wrong(path + ".function_call.arguments", {}, kArguments);
    call_id_ = formatted("call_{}", calls_++);
    Json& calls = message["tool_calls"];
    if (!calls.is_array()) calls = Json::array();
    calls.push_back({{"id", call_id_}, {"type", "function"}, {"function", call}});
  }

  static bool has_arguments(const Json& function) {
    const auto arguments = function.find("arguments");
    return arguments != function.end() && (arguments->is_string() || arguments->is_object());
  }

  // Templates say nothing of what they miss that a client could know.
  void check_calls(Json& message, const std::string& path) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || calls->is_null()) return;
    if (!calls->is_array()) return wrong(path + ".tool_calls", *calls, "an array of calls");
    for (size_t i = 0; i < calls->size() && !fields_.problem(); ++i) {
      const Json& call = (*calls)[i];
      const std::string at = formatted("{}.tool_calls[{}]", path, i);
      const std::string type = text_at(call, "type");
      const bool is_function = call.is_object() && (type.empty() || type == "function");
      const auto function = is_function ? call.find("function") : call.end();
      if (!is_function || function == call.end()) {
        wrong(at, call, "{\"type\": \"function\", \"function\"}");
      } else if (text_at(*function, "name").empty()) {
        wrong(at + ".function", *function, "a named function");
      } else if (!has_arguments(*function)) {
        wrong(at + ".function.arguments", function->value("arguments", Json()), kArguments);
      }
    }
  }

  void take_result(Json& message) {
    message["role"] = "tool";
    if (!message.contains("tool_call_id")) message["tool_call_id"] = call_id_;
  }

  // Parts in the words of vLLM, Mistral (a list of texts) and LangChain ("reasoning").
  void take_thoughts(Json& message) {
    Json& content = message["content"];
    if (!content.is_array()) return;
    std::string thoughts;
    Json rest = Json::array();
    for (Json& part : content) {
      const std::string type = text_at(part, "type");
      if (type != "thinking" && type != "reasoning") {
        rest.push_back(std::move(part));
      } else if (const auto list = part.find(type); list != part.end() && list->is_array()) {
        for (const Json& text : *list) thoughts += text_at(text, "text");
      } else {
        thoughts += text_at(part, type.c_str());
      }
    }
    content = std::move(rest);
    if (content.empty()) content = "";
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const std::string beside = text_at(message, name);
      if (beside.empty()) continue;
      if (beside != thoughts) message[name] = beside + thoughts;
      return;
    }
    if (!thoughts.empty()) message["reasoning_content"] = std::move(thoughts);
  }

  void take_content(Json& content, const std::string& path, size_t m) {
    if (content.is_string() || content.is_null()) return;
    if (!content.is_array()) return wrong(path, content, "a string, an array of parts or null");
    for (size_t p = 0; p < content.size() && !fields_.problem(); ++p) {
      Json& part = content[p];
      const std::string at = formatted("{}[{}]", path, p);
      const std::string type = text_at(part, "type");
      const std::string_view kind = media_kind_of(part);
      const bool is_text = type == "text" || type == "input_text" || type == "output_text";
      if (is_text && (!part.contains("text") || !part["text"].is_string())) {
        return wrong(at + ".text", part.value("text", Json()), "a string");
      }
      if (!kind.empty() && m == question_) return fields_.fail(media_in_question(at, kind));
      if (!kind.empty()) {
        part = {{"type", "text"}, {"text", left_out_line(kind)}};
      } else if (type == "refusal") {
        part = {{"type", "text"}, {"text", text_at(part, "refusal")}};
      } else if (type == "input_text" || type == "output_text") {
        part = {{"type", "text"}, {"text", text_at(part, "text")}};
      } else if (type != "text") {
        fields_.fail(unsupported_field(
            at, formatted("{} is of type {}, expected text: models here read nothing else", at,
                          type.empty() ? "none" : json_excerpt(Json(type)))));
      }
    }
  }

  Fields& fields_;
  size_t question_ = ~size_t{0};  // the last message of the user
  std::string call_id_ = "call_0";
  int calls_ = 0;
};

// Null for what is run elsewhere.
Json read_tool(Fields& fields, const Json& tool, const std::string& path) {
  const auto wrong = [&](const std::string& param, std::string_view expected) {
    fields.fail(
        bad_field(param, formatted("{} is {}, expected {}", param, json_excerpt(tool), expected)));
    return Json();
  };
  if (!tool.is_object()) return wrong(path, "a tool");
  const auto function = tool.find("function");
  if (function != tool.end()) {
    if (text_at(*function, "name").empty()) return wrong(path + ".function", "a named function");
    Json read = tool;
    read["type"] = "function";
    return read;
  }
  const std::string type = text_at(tool, "type");
  if (!type.empty() && type != "function") return {};
  // As OpenAI's responses have it.
  if (text_at(tool, "name").empty()) return wrong(path, "{\"type\": \"function\", \"function\"}");
  Json inner = tool;
  inner.erase("type");
  return {{"type", "function"}, {"function", std::move(inner)}};
}

}  // namespace

Json read_chat_messages(Fields& fields) {
  const Json* messages = fields.array("messages");
  if (messages == nullptr) {
    fields.fail(bad_field("messages", "messages is absent, expected an array of messages"));
    return Json::array();
  }
  if (messages->empty()) fields.fail(bad_field("messages", "messages is empty"));
  return ChatMessages(fields).read(*messages);
}

Json read_chat_tools(Fields& fields, std::vector<std::string>& dropped,
                     std::vector<std::string>& sources) {
  Json tools = Json::array();
  const Json* given = fields.array("tools");
  for (size_t i = 0; given != nullptr && i < given->size() && !fields.problem(); ++i) {
    Json read = read_tool(fields, (*given)[i], formatted("tools[{}]", i));
    if (!read.is_null()) {
      const bool is_wrapped = (*given)[i].contains("function");
      sources.push_back(formatted("tools[{}].{}parameters", i, is_wrapped ? "function." : ""));
      tools.push_back(std::move(read));
    } else if (!fields.problem()) {
      dropped.push_back(text_at((*given)[i], "type"));
    }
  }
  if (const Json* functions = fields.array("functions"); functions != nullptr && given == nullptr) {
    for (size_t i = 0; i < functions->size(); ++i) {
      if (text_at((*functions)[i], "name").empty()) {
        const std::string path = formatted("functions[{}]", i);
        fields.fail(bad_field(path, formatted("{} is {}, expected a named function", path,
                                              json_excerpt((*functions)[i]))));
        break;
      }
      sources.push_back(formatted("functions[{}].parameters", i));
      tools.push_back({{"type", "function"}, {"function", (*functions)[i]}});
    }
  }
  return tools.empty() ? Json() : tools;
}

}  // namespace moeflux::serve
