#include "serve/anthropic/request.h"

#include <string>
#include <utility>

#include "base/format.h"
#include "serve/anthropic/conversation.h"
#include "serve/anthropic/field_list.h"

namespace moeflux::serve {
namespace {

bool is_of_user(const Json& message) {
  return message.is_object() && message.value("role", Json()) == "user";
}

// A last text of the assistant is continued; its calls want results. No message at all is for the
// template to judge, as it is to llama.cpp.
void read_conversation(Fields& fields, const MessagesOptions& options, ChatRequest& request) {
  BlockReader blocks(fields, options);
  if (const Json* system = fields.find("system")) blocks.read_system(*system);
  const Json* messages = fields.array("messages");
  if (messages == nullptr) {
    return fields.fail(bad_field("messages", "messages is absent, expected messages"));
  }
  size_t question = messages->size();
  while (question > 0 && !is_of_user((*messages)[question - 1])) --question;
  for (size_t i = 0; i < messages->size() && !fields.problem(); ++i) {
    blocks.read_message((*messages)[i], formatted("messages[{}]", i), i + 1 == question);
  }
  Json& all = request.conversation.messages = blocks.take();
  if (!all.empty() && all.back().contains("tool_calls")) {
    fields.fail(unsupported_field(
        "messages", "messages end with the assistant's tool_use, expected its tool_result"));
  }
}

ToolChoice read_tool_choice(Fields& fields, ChatRequest& request) {
  ToolChoice read;
  const Json* given = fields.object("tool_choice");
  if (given == nullptr) return read;
  Fields choice(*given, "tool_choice");
  const std::string type = choice.text("type").value_or("");
  if (type == "any" || type == "tool") {
    read.rule.required = true;
  } else if (type == "none") {
    read.shown = false;
  } else if (type != "auto") {
    choice.fail(bad_field(
        "tool_choice.type",
        formatted("tool_choice.type is {}, expected auto, any, tool or none", json_excerpt(type))));
  }
  if (type == "tool") {
    const auto name = choice.text("name");
    if (!name) choice.fail(bad_field("tool_choice.name", "tool_choice.name is absent"));
    read.rule.names = {name.value_or("")};
    read.rule.one = true;
  }
  request.one_call = choice.boolean("disable_parallel_tool_use").value_or(false);
  if (choice.problem()) fields.fail(*choice.problem());
  return read;
}

// Tools that Anthropic's servers run are left out, by name.
void read_tools(Fields& fields, ChatRequest& request) {
  const Json* given = fields.array("tools");
  Json tools = Json::array();
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    Fields one((*given)[i], formatted("tools[{}]", i));
    const std::string type = one.text("type").value_or("custom");
    if (type == "function" || one.has("function")) {
      const std::string name = one.full_name(type == "function" ? "type" : "function");
      one.fail(bad_field(name, name + " is a tool's of OpenAI's interface, expected name and "
                                      "input_schema in the tool itself"));
    }
    const auto name = one.text("name");
    const auto description = one.text("description");
    const Json* schema = one.object("input_schema");
    const bool strict = one.boolean("strict").value_or(false);
    if (!one.problem() && type != "custom") {
      request.dropped_tools.push_back(type);
      continue;
    }
    if (!name) one.fail(bad_field(one.full_name("name"), one.full_name("name") + " is absent"));
    if (one.problem()) return fields.fail(*one.problem());
    Json function = {{"name", *name}};
    if (description) function["description"] = *description;
    function["parameters"] = schema == nullptr ? Json::object() : *schema;
    if (strict) function["strict"] = true;
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    request.tool_sources.push_back(one.full_name("input_schema"));
  }
  ToolChoice choice = read_tool_choice(fields, request);
  set_tools(fields, request, std::move(tools), std::move(choice), "tool_choice");
}

// Without `thinking` in the request there is none, as from Anthropic, where the model can do
// without.
void read_thinking(Fields& fields, ChatRequest& request) {
  std::string type = "disabled";
  if (const Json* given = fields.object("thinking")) {
    Fields thinking(*given, "thinking");
    type = thinking.text("type").value_or("");
    if (const auto budget = thinking.integer("budget_tokens", {0, kTokenCountMax})) {
      request.reasoning_tokens_max = *budget;
    }
    if (type != "enabled" && type != "disabled" && type != "adaptive") {
      thinking.fail(
          bad_field("thinking.type", formatted("thinking.type is {}, expected enabled, disabled or "
                                               "adaptive",
                                               json_excerpt(type))));
    }
    if (thinking.problem()) fields.fail(*thinking.problem());
  }
  request.conversation.variables["enable_thinking"] = type != "disabled";
}

OutputConstraint read_format(Fields& fields, const Json& given, std::string name) {
  Fields format(given, std::move(name));
  const std::string type = format.text("type").value_or("");
  if (type != "json_schema") {
    const std::string path = format.full_name("type");
    format.fail(bad_field(path, formatted("{} is {}, expected json_schema", path,
                                          json_excerpt(given.value("type", Json())))));
  }
  const Json* schema = format.object("schema");
  const std::string source = format.full_name("schema");
  if (schema == nullptr) format.fail(bad_field(source, source + " is absent"));
  if (format.problem()) fields.fail(*format.problem());
  return schema == nullptr ? OutputConstraint{} : held_to_schema(*schema, source);
}

OutputConstraint read_output(Fields& fields, ChatRequest& request) {
  OutputConstraint held;
  if (const Json* old = fields.object("output_format")) {  // its name while it was a beta
    held = read_format(fields, *old, "output_format");
  }
  const Json* given = fields.object("output_config");
  if (given == nullptr) return held;
  Fields config(*given, "output_config");
  if (const auto effort = config.text("effort")) set_effort(request, *effort);
  if (const Json* format = config.object("format")) {
    held = read_format(config, *format, "output_config.format");
  }
  if (config.problem()) fields.fail(*config.problem());
  return held;
}

}  // namespace

DecodedChat decode_messages_request(const Json& body, const RequestDefaults& defaults,
                                    const MessagesOptions& options) {
  Fields fields(body, messages_field_list());
  ChatRequest request{.generation = read_shared_generation(fields, defaults.sampler)};
  read_conversation(fields, options, request);
  request.generation.stream = fields.boolean("stream").value_or(false);
  if (const auto tokens_max = fields.integer("max_tokens", {1, kTokenCountMax})) {
    request.generation.tokens_max = *tokens_max;
  } else if (!options.counts_only) {
    fields.fail(bad_field("max_tokens", "max_tokens is absent, expected a number of tokens"));
  }
  if (auto stop = fields.texts("stop_sequences", kStopsMax)) {
    request.generation.stop = std::move(*stop);
  }
  read_tools(fields, request);
  request.reasoning_tokens_max = read_reasoning_budget(fields, defaults);
  request.conversation.variables = defaults.template_variables;
  OutputConstraint held = read_output(fields, request);
  read_thinking(fields, request);
  request.constraint = read_constraint(fields, std::move(held));
  read_template_variables(fields, request);
  read_continuation(fields, request);
  (void)fields.has("model");  // read by who asks for the answer
  request.generation.ignored = fields.ignored();
  if (fields.problem()) return *fields.problem();
  return request;
}

}  // namespace moeflux::serve
