#include "serve/responses/request.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "serve/field_names.h"

namespace moeflux::serve {
namespace {

constexpr int64_t kCountMax = int64_t{1} << 40;

// Read here, ignored, or with another meaning in chat completions.
constexpr std::array<std::string_view, 22> kOwn = {"input",
                                                   "instructions",
                                                   "tools",
                                                   "tool_choice",
                                                   "text",
                                                   "reasoning",
                                                   "max_output_tokens",
                                                   "max_completion_tokens",
                                                   "max_tokens",
                                                   "messages",
                                                   "include",
                                                   "metadata",
                                                   "store",
                                                   "truncation",
                                                   "previous_response_id",
                                                   "conversation",
                                                   "background",
                                                   "prompt",
                                                   "response_format",
                                                   "reasoning_effort",
                                                   "function_call",
                                                   "user"};

constexpr std::array<FieldName, 5> kNames = {{
    {"max_completion_tokens", "max_output_tokens"},
    {"response_format.json_schema", "text.format"},
    {"response_format", "text.format"},
    {"reasoning_effort", "reasoning.effort"},
    {"messages", "input"},
}};

std::string type_of(const Json& value) {
  if (!value.is_object()) return {};
  const auto type = value.find("type");
  return type == value.end() || !type->is_string() ? std::string() : type->get<std::string>();
}

/// Reads items into messages of chat completions. What the assistant said in several items is one
/// message: templates know turns.
class Items {
 public:
  explicit Items(Fields& fields) : fields_(fields) {}

  void add_system(std::string text) {
    messages_.push_back({{"role", "system"}, {"content", std::move(text)}});
  }
  void read(const Json& item, const std::string& path);
  Json take() {
    flush();
    return std::move(messages_);
  }

 private:
  void message(const Json& item, const std::string& path);
  void function_call(const Json& item, const std::string& path);
  void function_call_output(const Json& item, const std::string& path);
  void reasoning(const Json& item);
  /// A string, or parts of text as chat completions have them.
  Json content(const Json& value, const std::string& path);
  Json& assistant() {
    if (assistant_.is_null()) assistant_ = {{"role", "assistant"}, {"content", nullptr}};
    return assistant_;
  }
  void flush() {
    if (assistant_.is_null()) return;
    if (assistant_["content"].is_null() && !assistant_.contains("tool_calls")) {
      assistant_["content"] = "";
    }
    messages_.push_back(std::exchange(assistant_, Json()));
  }
  std::string text_of(const Json& item, const char* name, const std::string& path);

  Fields& fields_;
  Json messages_ = Json::array();
  Json assistant_;  // or null
};

std::string Items::text_of(const Json& item, const char* name, const std::string& path) {
  const auto text = item.find(name);
  if (text != item.end() && text->is_string()) return text->get<std::string>();
  const std::string param = path + "." + name;
  fields_.fail(bad_field(param, formatted("{} is {}, expected a string", param,
                                          text == item.end() ? "absent" : json_excerpt(*text))));
  return {};
}

Json Items::content(const Json& value, const std::string& path) {
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
    if (type == "input_text" || type == "output_text" || type == "text") {
      parts.push_back({{"type", "text"}, {"text", text_of(value[i], "text", at)}});
    } else if (type == "refusal") {
      parts.push_back({{"type", "text"}, {"text", text_of(value[i], "refusal", at)}});
    } else {
      fields_.fail(unsupported_field(
          at, formatted("{} is of type {}, expected text: models here read nothing else", at,
                        type.empty() ? "none" : type)));
    }
  }
  if (parts.size() == 1) return std::move(parts[0]["text"]);
  return parts;
}

void Items::message(const Json& item, const std::string& path) {
  const std::string role = text_of(item, "role", path);
  if (fields_.problem()) return;
  const auto found = item.find("content");
  Json said = content(found == item.end() ? Json() : *found, path + ".content");
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
    return Json::array({{{"type", "text"}, {"text", std::move(text)}}});
  };
  own = as_parts(std::move(own));
  for (Json& part : as_parts(std::move(said))) own.push_back(std::move(part));
}

void Items::function_call(const Json& item, const std::string& path) {
  Json& message = assistant();
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(
      {{"id", text_of(item, "call_id", path)},
       {"type", "function"},
       {"function",
        {{"name", text_of(item, "name", path)}, {"arguments", text_of(item, "arguments", path)}}}});
}

void Items::function_call_output(const Json& item, const std::string& path) {
  flush();
  const auto output = item.find("output");
  messages_.push_back(
      {{"role", "tool"},
       {"tool_call_id", text_of(item, "call_id", path)},
       {"content", content(output == item.end() ? Json() : *output, path + ".output")}});
}

// The text itself, else its summary; what is encrypted nobody here wrote.
void Items::reasoning(const Json& item) {
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

// Items of tools that run elsewhere are left out, as these tools are.
void Items::read(const Json& item, const std::string& path) {
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
  if (type == "message" || (type.empty() && item.contains("role"))) return message(item, path);
  if (type.empty()) {
    fields_.fail(bad_field(path, formatted("{} has no type, expected one of an item", path)));
  }
}

void read_conversation(Fields& fields, const Json& earlier, ResponsesRequest& request, Json& chat) {
  Items items(fields);
  if (auto instructions = fields.text("instructions")) items.add_system(std::move(*instructions));
  const Json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    request.input.push_back({{"type", "message"}, {"role", "user"}, {"content", *input}});
  } else if (input != nullptr && input->is_array()) {
    request.input = *input;
  } else {
    return fields.fail(bad_field("input", "input is absent, expected a string or items"));
  }
  for (const Json& item : earlier) items.read(item, "previous_response_id");
  for (size_t i = 0; i < request.input.size() && !fields.problem(); ++i) {
    items.read(request.input[i], formatted("input[{}]", i));
  }
  chat["messages"] = items.take();
}

void read_tools(Fields& fields, ResponsesRequest& request, Json& chat,
                std::vector<std::string>& dropped) {
  const Json* given = fields.array("tools");
  Json tools = Json::array();
  Json echo = Json::array();
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    const Json& tool = (*given)[i];
    Fields one(tool, formatted("tools[{}]", i));
    const std::string type = one.text("type").value_or("");
    if (!one.problem() && type != "function") {
      dropped.push_back(type);
      continue;
    }
    const auto name = one.text("name");
    const auto description = one.text("description");
    const Json* parameters = one.object("parameters");
    const bool strict = one.boolean("strict").value_or(false);
    if (!name) one.fail(bad_field(one.full_name("name"), one.full_name("name") + " is absent"));
    if (one.problem()) return fields.fail(*one.problem());
    Json function = {{"name", *name}};
    if (description) function["description"] = *description;
    function["parameters"] = parameters == nullptr ? Json::object() : *parameters;
    if (strict) function["strict"] = true;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    Json& shown = echo.emplace_back(tool);
    for (const char* optional : {"description", "parameters"}) {
      if (!shown.contains(optional)) shown[optional] = nullptr;
    }
    shown["strict"] = strict;
  }
  request.echo["tools"] = std::move(echo);
  if (!tools.empty()) chat["tools"] = std::move(tools);
}

void read_tool_choice(Fields& fields, ResponsesRequest& request, Json& chat) {
  const Json* choice = fields.find("tool_choice");
  request.echo["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  // Without its tools a choice among them says nothing.
  if (choice == nullptr || !chat.contains("tools")) return;
  if (type_of(*choice) != "function") {
    chat["tool_choice"] = *choice;
    return;
  }
  Fields named(*choice, "tool_choice");
  const auto name = named.text("name");
  if (!name) named.fail(bad_field("tool_choice.name", "tool_choice.name is absent"));
  if (named.problem()) return fields.fail(*named.problem());
  chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
}

void read_text(Fields& fields, ResponsesRequest& request, Json& chat) {
  Json format = {{"type", "text"}};
  if (const Json* text = fields.object("text")) {
    Fields inner(*text, "text");
    if (const Json* given = inner.object("format")) format = *given;
    if (inner.problem()) return fields.fail(*inner.problem());
  }
  request.echo["text"] = {{"format", format}};
  if (type_of(format) == "json_schema") {
    // What describes a schema lies beside its type here, and below it in chat completions.
    Json schema = format;
    schema.erase("type");
    chat["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  } else {
    chat["response_format"] = std::move(format);
  }
}

void read_reasoning(Fields& fields, ResponsesRequest& request, Json& chat) {
  const Json* given = fields.object("reasoning");
  request.echo["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  if (given == nullptr) return;
  Fields reasoning(*given, "reasoning");
  if (const auto effort = reasoning.text("effort")) {
    chat["reasoning_effort"] = *effort;
    request.echo["reasoning"]["effort"] = *effort;
  }
  if (reasoning.problem()) fields.fail(*reasoning.problem());
}

void read_scores(Fields& fields, const Json& body, Json& chat) {
  const Json* include = fields.array("include");
  const bool wanted =
      include != nullptr &&
      std::find(include->begin(), include->end(), "message.output_text.logprobs") != include->end();
  if (!wanted) return;
  chat["logprobs"] = true;
  if (body.contains("top_logprobs")) chat["top_logprobs"] = body["top_logprobs"];
}

// 0.8, where a double of the float says 0.800000011920929.
Json as_written(float number) {
  const Result<Json> written = parse_json(formatted("{}", number), "a number");
  return written.ok() ? *written : Json(number);
}

// What the response repeats: what was asked for, with the values in force where it was left out.
// Each field is there, as Open Responses has it.
void read_echo(Fields& fields, ResponsesRequest& request) {
  Json& echo = request.echo;
  for (const char* name :
       {"instructions", "previous_response_id", "safety_identifier", "prompt_cache_key"}) {
    const auto text = fields.text(name);
    echo[name] = text ? Json(*text) : Json();
  }
  // Of tools that servers run, of which there are none here.
  const auto calls_max = fields.integer("max_tool_calls", {1, kCountMax});
  echo["max_tool_calls"] = calls_max ? Json(*calls_max) : Json();
  const GenerationFields& generation = request.chat.generation;
  echo["max_output_tokens"] = generation.tokens_max < 0 ? Json() : Json(generation.tokens_max);
  const SamplerOptions& sampler = generation.sampler;
  echo["temperature"] = as_written(sampler.temperature);
  echo["top_p"] = as_written(sampler.top_p);
  echo["presence_penalty"] = as_written(sampler.presence_penalty);
  echo["frequency_penalty"] = as_written(sampler.frequency_penalty);
  echo["top_logprobs"] = fields.integer("top_logprobs", {0, kTopLogprobsMax}).value_or(0);
  const Json* metadata = fields.object("metadata");
  echo["metadata"] = metadata == nullptr ? Json::object() : *metadata;
  echo["store"] = request.store;
}

}  // namespace

std::variant<ResponsesRequest, ApiError> decode_responses_request(const Json& body,
                                                                  const RequestDefaults& defaults,
                                                                  const Json& earlier) {
  Fields fields(body);
  ResponsesRequest request;
  Json chat = shared_fields(body, kOwn);
  std::vector<std::string> dropped;
  for (const char* name : {"conversation", "prompt"}) {
    if (fields.has(name)) fields.fail(unsupported_field(name, formatted("no {} here", name)));
  }
  if (fields.boolean("background").value_or(false)) {
    fields.fail(unsupported_field("background", "background: answers are given while you wait"));
  }
  read_conversation(fields, earlier, request, chat);
  if (const Json* most = fields.find("max_output_tokens")) chat["max_completion_tokens"] = *most;
  request.store = fields.boolean("store").value_or(true);
  request.echo["parallel_tool_calls"] = fields.boolean("parallel_tool_calls").value_or(true);
  read_tools(fields, request, chat, dropped);
  read_tool_choice(fields, request, chat);
  read_text(fields, request, chat);
  read_reasoning(fields, request, chat);
  read_scores(fields, body, chat);
  if (fields.problem()) return *fields.problem();
  DecodedChat decoded = decode_translated(chat, defaults, kNames);
  if (auto* error = std::get_if<ApiError>(&decoded)) return std::move(*error);
  request.chat = std::get<ChatRequest>(std::move(decoded));
  request.chat.dropped_tools = std::move(dropped);
  read_echo(fields, request);
  if (fields.problem()) return *fields.problem();
  return request;
}

}  // namespace moeflux::serve
