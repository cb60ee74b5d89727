#include "serve/ollama/request.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "serve/field_names.h"
#include "serve/wire_json.h"

namespace moeflux::serve {
namespace {

/// Options of Ollama's with the same names and meanings as in chat completions.
constexpr std::array<std::string_view, 14> kSamplers = {"temperature",
                                                        "top_k",
                                                        "top_p",
                                                        "min_p",
                                                        "seed",
                                                        "stop",
                                                        "repeat_penalty",
                                                        "typical_p",
                                                        "mirostat",
                                                        "repeat_last_n",
                                                        "presence_penalty",
                                                        "frequency_penalty",
                                                        "mirostat_tau",
                                                        "mirostat_eta"};

constexpr std::array<FieldName, 4> kNames = {{
    {"max_completion_tokens", "options.num_predict"},
    {"response_format.json_schema.schema", "format"},
    {"response_format", "format"},
    {"reasoning_effort", "think"},
}};

// Options keep their names, a level down.
ApiError named_as_option(ApiError error) {
  if (std::find(kSamplers.begin(), kSamplers.end(), error.param) == kSamplers.end()) return error;
  const std::string theirs = "options." + error.param;
  const std::string openai = error.param;
  const FieldName option{openai, theirs};
  return in_their_words(std::move(error), {&option, 1});
}

void read_options(Fields& fields, int64_t context_length, Json& chat) {
  const Json* given = fields.object("options");
  if (given == nullptr) return;
  Fields options(*given, "options");
  for (const std::string_view name : kSamplers) {
    if (const Json* value = options.find(name)) chat[std::string(name)] = *value;
  }
  const int64_t any = std::numeric_limits<int32_t>::max();
  // Negative: until the text or the context ends.
  if (const auto most = options.integer("num_predict", {-2, any})) {
    chat["max_completion_tokens"] = std::max<int64_t>(*most, -1);
  }
  const auto context = options.integer("num_ctx", {0, any});
  if (context && *context > context_length) {
    options.fail(bad_field("options.num_ctx",
                           formatted("options.num_ctx is {}, the server's context has {} tokens "
                                     "(see --ctx-size)",
                                     *context, context_length)));
  }
  if (options.problem()) fields.fail(*options.problem());
}

void read_think(Fields& fields, Json& chat) {
  const Json* think = fields.find("think");
  if (think == nullptr) return;
  Json variables = Json::object();
  if (think->is_boolean()) {
    variables["enable_thinking"] = *think;
  } else if (think->is_string()) {
    variables["enable_thinking"] = true;
    chat["reasoning_effort"] = *think;
  } else {
    fields.fail(bad_field(
        "think", formatted("think is {}, expected true, false or a level", json_excerpt(*think))));
  }
  chat["chat_template_kwargs"] = std::move(variables);
}

void read_format(Fields& fields, Json& chat) {
  const Json* format = fields.find("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    chat["response_format"] = {{"type", "json_object"}};
  } else if (format->is_object()) {
    chat["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "format"}, {"strict", true}, {"schema", *format}}}};
  } else {
    fields.fail(bad_field(
        "format", formatted("format is {}, expected \"json\" or a schema", json_excerpt(*format))));
  }
}

void refuse_images(Fields& fields, const Json& holder, const std::string& param) {
  if (!holder.is_object()) return;
  const auto images = holder.find("images");
  if (images == holder.end() || !images->is_array() || images->empty()) return;
  fields.fail(unsupported_field(param, param + ": models here read nothing but text"));
}

/// Calls have no ids here: each result is that of the first call of its name that has none yet,
/// else of the first call.
class CallIds {
 public:
  std::string add(std::string name) {
    by_name_[name].insert(next_);
    open_.emplace(next_, std::move(name));
    return formatted("call_{}", next_++);
  }
  std::string take(const std::string& name) {
    if (open_.empty()) return formatted("call_{}", next_++);
    const auto named = by_name_.find(name);
    const auto call = named == by_name_.end() ? open_.begin() : open_.find(*named->second.begin());
    const int number = call->first;
    const auto of_name = by_name_.find(call->second);
    of_name->second.erase(number);
    if (of_name->second.empty()) by_name_.erase(of_name);
    open_.erase(call);
    return formatted("call_{}", number);
  }

 private:
  std::map<int, std::string> open_;               // calls without a result, and their names
  std::map<std::string, std::set<int>> by_name_;  // the same; no empty ones
  int next_ = 0;
};

Json read_calls(Fields& message, CallIds& ids) {
  Json calls = Json::array();
  const Json* given = message.array("tool_calls");
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    Fields call((*given)[i], formatted("{}[{}]", message.full_name("tool_calls"), i));
    const Json* object = call.object("function");
    if (object == nullptr)
      call.fail(bad_field(call.full_name("function"), call.full_name("function") + " is absent"));
    if (call.problem()) {
      message.fail(*call.problem());
      return calls;
    }
    Fields function(*object, call.full_name("function"));
    const std::string name = function.text("name").value_or("");
    const Json* arguments = function.object("arguments");
    if (function.problem()) {
      message.fail(*function.problem());
      return calls;
    }
    calls.push_back(
        {{"id", ids.add(name)},
         {"type", "function"},
         {"function",
          {{"name", name}, {"arguments", arguments == nullptr ? "{}" : dump_json(*arguments)}}}});
  }
  return calls;
}

Json read_message(Fields& message, CallIds& ids) {
  const std::string role = message.text("role").value_or("");
  Json read = {{"role", role}, {"content", message.text("content").value_or("")}};
  if (role == "assistant") {
    if (auto thinking = message.text("thinking")) read["reasoning_content"] = *thinking;
    Json calls = read_calls(message, ids);
    if (!calls.empty()) read["tool_calls"] = std::move(calls);
  } else if (role == "tool") {
    const std::string name = message.text("tool_name").value_or("");
    read["tool_call_id"] = ids.take(name);
    if (!name.empty()) read["name"] = name;
  }
  return read;
}

void read_messages(Fields& fields, OllamaRequest& request, Json& chat) {
  const Json* messages = fields.array("messages");
  Json read = Json::array();
  CallIds ids;
  for (size_t i = 0; messages != nullptr && i < messages->size(); ++i) {
    const std::string path = formatted("messages[{}]", i);
    Fields message((*messages)[i], path);
    refuse_images(fields, (*messages)[i], path + ".images");
    if (!message.problem()) read.push_back(read_message(message, ids));
    if (message.problem()) return fields.fail(*message.problem());
  }
  request.is_empty = read.empty();
  chat["messages"] = std::move(read);
}

// One question, perhaps with a system's words, or a text as it is.
void read_prompt(Fields& fields, const Json& body, OllamaRequest& request, Json& chat) {
  std::string prompt = fields.text("prompt").value_or("");
  const std::string system = fields.text("system").value_or("");
  for (const char* name : {"suffix", "template"}) {
    const auto text = fields.text(name);
    if (text && !text->empty()) {
      fields.fail(unsupported_field(name, formatted("{} cannot be given with a request", name)));
    }
  }
  if (const Json* context = fields.array("context"); context != nullptr && !context->empty()) {
    fields.fail(
        unsupported_field("context", "context: conversations go on in /api/chat, with messages"));
  }
  refuse_images(fields, body, "images");
  request.is_raw = fields.boolean("raw").value_or(false);
  request.is_empty = prompt.empty();
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  chat["messages"] = std::move(messages);
  request.raw_prompt = std::move(prompt);
}

DecodedOllama decode(Fields& fields, OllamaRequest request, Json chat,
                     const RequestDefaults& defaults, int64_t context_length) {
  read_options(fields, context_length, chat);
  read_think(fields, chat);
  read_format(fields, chat);
  if (const Json* tools = fields.array("tools")) chat["tools"] = *tools;
  chat["stream"] = fields.boolean("stream").value_or(true);
  if (fields.problem()) return *fields.problem();
  if (request.is_empty) {
    request.chat.generation.stream = chat["stream"].get<bool>();
    return request;
  }
  DecodedChat decoded = decode_translated(chat, defaults, kNames);
  if (auto* error = std::get_if<ApiError>(&decoded)) return named_as_option(std::move(*error));
  request.chat = std::get<ChatRequest>(std::move(decoded));
  return request;
}

}  // namespace

DecodedOllama decode_ollama_chat(const Json& body, const RequestDefaults& defaults,
                                 int64_t context_length) {
  Fields fields(body);
  OllamaRequest request;
  Json chat = Json::object();
  read_messages(fields, request, chat);
  return decode(fields, std::move(request), std::move(chat), defaults, context_length);
}

DecodedOllama decode_ollama_generate(const Json& body, const RequestDefaults& defaults,
                                     int64_t context_length) {
  Fields fields(body);
  OllamaRequest request;
  Json chat = Json::object();
  read_prompt(fields, body, request, chat);
  return decode(fields, std::move(request), std::move(chat), defaults, context_length);
}

}  // namespace moeflux::serve
