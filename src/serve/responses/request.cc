#include "serve/responses/request.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/format.h"
#include "schedule/text_request.h"
#include "serve/openai/constraint_fields.h"
#include "serve/responses/field_list.h"
#include "serve/responses/items.h"

namespace moeflux::serve {
namespace {

void read_conversation(Fields& fields, const Json& earlier, ResponsesRequest& request) {
  ItemReader items(fields);
  if (auto instructions = fields.text("instructions")) items.add_system(std::move(*instructions));
  const Json* input = fields.find("input");
  if (input != nullptr && input->is_string()) {
    request.input.push_back({{"type", "message"}, {"role", "user"}, {"content", *input}});
  } else if (input != nullptr && input->is_array()) {
    request.input = *input;
  } else {
    return fields.fail(
        bad_field("input", formatted("input is {}, expected a string or items",
                                     input == nullptr ? "absent" : json_excerpt(*input))));
  }
  for (const Json& item : earlier) items.read(item, "previous_response_id");
  size_t question = request.input.size();
  while (question > 0 && !ItemReader::is_of_user(request.input[question - 1])) --question;
  for (size_t i = 0; i < request.input.size() && !fields.problem(); ++i) {
    items.read(request.input[i], formatted("input[{}]", i), i + 1 == question);
  }
  request.chat.conversation.messages = items.take();
  if (request.chat.conversation.messages.empty()) {
    fields.fail(bad_field("input", "input is empty, expected a message"));
  }
}

void read_tools(Fields& fields, ResponsesRequest& request) {
  const Json* given = fields.array("tools");
  Json tools = Json::array();
  Json echo = Json::array();
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    const Json& tool = (*given)[i];
    Fields one(tool, formatted("tools[{}]", i));
    const std::string type = one.text("type").value_or("");
    if (type.empty()) {
      const std::string name = one.full_name("type");
      one.fail(bad_field(name, name + " is absent, expected \"function\""));
    }
    if (!one.problem() && type != "function") {
      request.chat.dropped_tools.push_back(type);
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
    request.chat.tool_sources.push_back(one.full_name("parameters"));
    Json& shown = echo.emplace_back(tool);
    for (const char* optional : {"description", "parameters"}) {
      if (!shown.contains(optional)) shown[optional] = nullptr;
    }
    shown["strict"] = strict;
  }
  request.echo["tools"] = std::move(echo);
  const Json* choice = fields.find("tool_choice");
  request.echo["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  set_tools(fields, request.chat, std::move(tools), read_tool_choice(fields, "tool_choice"),
            "tool_choice");
}

OutputConstraint read_format(Fields& text, const Json& format) {
  Fields fields(format, text.full_name("format"));
  const std::string type = fields.text("type").value_or("");
  OutputConstraint read{.source = fields.full_name("schema")};
  // llama.cpp's clients put a schema beside json_object.
  const Json* schema = fields.find("schema");
  const bool is_schema = schema != nullptr && (schema->is_object() || schema->is_boolean());
  if (type == "json_schema" || (type == "json_object" && schema != nullptr)) {
    if (is_schema) read = held_to_schema(*schema, std::move(read.source));
    if (!is_schema) {
      fields.fail(
          bad_field(read.source, formatted("{} is {}, expected a JSON schema", read.source,
                                           schema == nullptr ? "absent" : json_excerpt(*schema))));
    }
  } else if (type == "json_object") {
    read = {.kind = ConstraintKind::kJsonObject, .source = text.full_name("format")};
  } else if (type != "text") {
    const std::string name = fields.full_name("type");
    fields.fail(bad_field(name, formatted("{} is {}, expected \"text\", \"json_object\" or "
                                          "\"json_schema\"",
                                          name, json_excerpt(format.value("type", Json())))));
  }
  if (fields.problem()) text.fail(*fields.problem());
  return read;
}

OutputConstraint read_text(Fields& fields, ResponsesRequest& request) {
  OutputConstraint held;
  Json& echo = request.echo["text"];
  echo["format"] = {{"type", "text"}};
  const Json* given = fields.object("text");
  if (given == nullptr) return held;
  Fields text(*given, "text");
  if (const Json* format = text.object("format")) {
    held = read_format(text, *format);
    echo["format"] = *format;
    if (held.kind == ConstraintKind::kJsonSchema) {
      Json& shown = echo["format"];
      if (!shown.contains("description")) shown["description"] = nullptr;
      shown["strict"] = true;  // a schema always holds
    }
  }
  // A variable of the template, as the effort is.
  if (const auto verbosity = text.text("verbosity")) {
    request.chat.conversation.variables["verbosity"] = *verbosity;
    echo["verbosity"] = *verbosity;
  }
  if (text.problem()) fields.fail(*text.problem());
  return held;
}

void read_reasoning(Fields& fields, ResponsesRequest& request) {
  request.echo["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  const Json* given = fields.object("reasoning");
  if (given == nullptr) return;
  Fields reasoning(*given, "reasoning");
  if (const auto effort = reasoning.text("effort")) {
    set_effort(request.chat, *effort);
    request.echo["reasoning"]["effort"] = *effort;
  }
  if (reasoning.problem()) fields.fail(*reasoning.problem());
}

// Items of tools that servers run can be included as well; there are none here.
void read_scores(Fields& fields, ResponsesRequest& request) {
  const int64_t top = fields.integer("top_logprobs", {0, kTopLogprobsMax}).value_or(0);
  request.echo["top_logprobs"] = top;
  const Json* include = fields.array("include");
  if (include == nullptr) return;
  if (std::find(include->begin(), include->end(), "message.output_text.logprobs") !=
      include->end()) {
    request.chat.top_logprobs = static_cast<int32_t>(top);
  }
}

// 0.8, where a double of the float says 0.800000011920929.
Json as_written(float number) {
  const Result<Json> written = parse_json(formatted("{}", number), "a number");
  return written.ok() ? *written : Json(number);
}

// The response repeats what was asked for, with the values in force where it was left out. Each
// field is there, as Open Responses has it.
void read_echo(Fields& fields, ResponsesRequest& request) {
  Json& echo = request.echo;
  for (const char* name :
       {"instructions", "previous_response_id", "safety_identifier", "prompt_cache_key"}) {
    const auto text = fields.text(name);
    echo[name] = text ? Json(*text) : Json();
  }
  // It counts calls of tools that servers run, of which there are none here.
  const auto calls_max = fields.integer("max_tool_calls", {1, kTokenCountMax});
  echo["max_tool_calls"] = calls_max ? Json(*calls_max) : Json();
  const GenerationFields& generation = request.chat.generation;
  echo["max_output_tokens"] = generation.tokens_max < 0 ? Json() : Json(generation.tokens_max);
  const SamplerOptions& sampler = generation.sampler;
  echo["temperature"] = as_written(sampler.temperature);
  echo["top_p"] = as_written(sampler.top_p);
  echo["presence_penalty"] = as_written(sampler.presence_penalty);
  echo["frequency_penalty"] = as_written(sampler.frequency_penalty);
  const Json* metadata = fields.object("metadata");
  echo["metadata"] = metadata == nullptr ? Json::object() : *metadata;
  echo["parallel_tool_calls"] = !request.chat.one_call;
  echo["store"] = request.store;
}

void check_truncation(Fields& fields) {
  const auto truncation = fields.text("truncation");
  if (truncation && *truncation != "auto" && *truncation != "disabled") {
    fields.fail(bad_field("truncation", formatted("truncation is {}, expected auto or disabled",
                                                  json_excerpt(Json(*truncation)))));
  }
}

}  // namespace

std::variant<ResponsesRequest, ApiError> decode_responses_request(const Json& body,
                                                                  const RequestDefaults& defaults,
                                                                  const Json& earlier) {
  Fields fields(body, responses_field_list());
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.generation = read_shared_generation(fields, defaults.sampler);
  check_truncation(fields);
  read_conversation(fields, earlier, request);
  chat.generation.tokens_max =
      fields.integer("max_output_tokens", {-1, kTokenCountMax}).value_or(-1);
  chat.generation.stream = fields.boolean("stream").value_or(false);
  if (auto stop = fields.texts("stop", kStopsMax)) chat.generation.stop = std::move(*stop);
  chat.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
  chat.reasoning_tokens_max = read_reasoning_budget(fields, defaults);
  chat.conversation.variables = defaults.template_variables;
  request.store = fields.boolean("store").value_or(true);
  read_tools(fields, request);
  read_reasoning(fields, request);
  chat.constraint = read_constraint(fields, read_text(fields, request));
  read_template_variables(fields, chat);
  read_continuation(fields, chat);
  read_scores(fields, request);
  read_echo(fields, request);
  (void)fields.has("model");  // read by who asks for the answer
  chat.generation.ignored = fields.ignored();
  if (fields.problem()) return *fields.problem();
  return request;
}

}  // namespace moeflux::serve
