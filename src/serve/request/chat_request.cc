#include "serve/request/chat_request.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/format.h"
#include "serve/request/guided_fields.h"
#include "serve/wire/wire_json.h"

namespace moeflux::serve {
namespace {

bool names_object(const Json& type) {
  return type == "object" ||
         (type.is_array() && std::find(type.begin(), type.end(), "object") != type.end());
}

// Arguments are an object. A value that is absent, null or says no type may be one.
bool may_be_object(const Json& schema) {
  if (schema.is_null()) return true;
  if (!schema.is_object()) return false;
  const auto type = schema.find("type");
  const bool is_said = type != schema.end() && !type->is_null() && *type != "";
  if (is_said && !names_object(*type)) return false;
  const auto value = schema.find("const");
  if (value != schema.end() && !value->is_object()) return false;
  const auto values = schema.find("enum");
  return values == schema.end() || !values->is_array() ||
         std::any_of(values->begin(), values->end(),
                     [](const Json& one) { return one.is_object(); });
}

// `sources` as ChatRequest has them.
void check_schemas(Fields& fields, const Json& tools, const std::vector<std::string>& sources) {
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) continue;
    const auto function = tools[i].find("function");
    const Json& holder = function != tools[i].end() ? *function : tools[i];
    const auto schema = holder.is_object() ? holder.find("parameters") : holder.end();
    if (!holder.is_object() || schema == holder.end() || may_be_object(*schema)) continue;
    const std::string param =
        i < sources.size() ? sources[i] : formatted("tools[{}].function.parameters", i);
    fields.fail(bad_field(param, formatted("{} is {}, expected a schema of type object", param,
                                           json_excerpt(*schema))));
  }
}

// Results that follow each other stand in the order of their calls: templates that show no ids
// leave it to that which result is whose.
void put_results_in_order(Json& messages) {
  if (!messages.is_array()) return;
  auto& all = *messages.get_ptr<Json::array_t*>();
  const auto text = [](const Json& object, const char* name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    const bool is_text = object.is_object() && found != object.end() && found->is_string();
    return is_text ? found->get<std::string>() : std::string();
  };
  const auto is_result = [&](const Json& message) { return text(message, "role") == "tool"; };
  std::map<std::string, size_t> places;  // of calls by their ids; an id's last call counts
  size_t called = 0;
  const auto place_of = [&](const Json& result) {
    const auto found = places.find(text(result, "tool_call_id"));
    return found == places.end() ? called : found->second;
  };
  for (auto at = all.begin(); at != all.end();) {
    if (is_result(*at)) {
      const auto end = std::find_if_not(at, all.end(), is_result);
      std::stable_sort(at, end,
                       [&](const Json& a, const Json& b) { return place_of(a) < place_of(b); });
      at = end;
      continue;
    }
    const Json calls = at->is_object() ? at->value("tool_calls", Json()) : Json();
    for (const Json& call : calls.is_array() ? calls : Json::array()) {
      places[text(call, "id")] = called++;
    }
    ++at;
  }
}

}  // namespace

std::string tool_name(const Json& tool) {
  if (!tool.is_object()) return {};
  const auto function = tool.find("function");
  const Json& holder = function != tool.end() ? *function : tool;
  if (!holder.is_object()) return {};
  const auto name = holder.find("name");
  return name != holder.end() && name->is_string() ? name->get<std::string>() : std::string();
}

void set_tools(Fields& fields, ChatRequest& request, Json tools, ToolChoice choice,
               std::string_view field) {
  const auto wrong = [&](std::string message) {
    fields.fail(bad_field(std::string(field), std::move(message)));
  };
  if (choice.rule.required && tools.empty() && !request.dropped_tools.empty()) {
    fields.fail(unsupported_field(
        "tools[0]", formatted("tools[0] is of type {}, which nobody here can run, and {} asks for "
                              "a call: expected a function",
                              json_excerpt(Json(request.dropped_tools.front())), field)));
  }
  if (choice.rule.required && tools.empty()) {
    wrong(formatted("{} asks for a call, and there are no tools", field));
  }
  std::set<std::string> names;
  for (const Json& tool : tools) names.insert(tool_name(tool));
  for (const std::string& name : choice.rule.names) {
    if (names.count(name) > 0) continue;
    wrong(formatted("{} names \"{}\", which is not one of the tools", field, name));
  }
  check_schemas(fields, tools, request.tool_sources);
  request.tool_rule = std::move(choice.rule);
  if (tools.empty()) return;
  request.tools = std::make_shared<const ToolTypes>(ToolTypes::of_tools(tools));
  if (choice.shown) request.conversation.tools = std::move(tools);
}

void set_effort(ChatRequest& request, const std::string& effort) {
  request.conversation.variables["reasoning_effort"] = effort;
  if (effort == "none") request.conversation.variables["enable_thinking"] = false;
}

int64_t read_reasoning_budget(Fields& fields, const RequestDefaults& defaults) {
  int64_t budget = defaults.reasoning_tokens_max;
  for (const char* name : {"reasoning_budget", "thinking_budget_tokens", "thinking_token_budget"}) {
    if (const auto most = fields.integer(name, {-1, kTokenCountMax})) budget = *most;
  }
  return budget;
}

void read_template_variables(Fields& fields, ChatRequest& request) {
  if (const auto thinks = fields.boolean("enable_thinking")) {
    request.conversation.variables["enable_thinking"] = *thinks;
  }
  if (const Json* documents = fields.array("documents")) {
    request.conversation.documents = *documents;
  }
  const Json* given = fields.object("chat_template_kwargs");
  if (given == nullptr) return;
  for (const auto& [name, value] : given->items()) request.conversation.variables[name] = value;
}

OutputConstraint held_to_schema(const Json& schema, std::string source) {
  return {
      .kind = ConstraintKind::kJsonSchema, .text = dump_json(schema), .source = std::move(source)};
}

OutputConstraint read_constraint(Fields& fields, OutputConstraint own) {
  std::vector<OutputConstraint> read;
  if (own.kind != ConstraintKind::kNone) read.push_back(std::move(own));
  if (const Json* schema = fields.find("json_schema")) {
    read.push_back(held_to_schema(*schema, fields.full_name("json_schema")));
  }
  if (auto grammar = fields.text("grammar"); grammar && !grammar->empty()) {
    read.push_back({.kind = ConstraintKind::kLark,
                    .text = std::move(*grammar),
                    .source = fields.full_name("grammar")});
  }
  if (auto regex = fields.text("regex")) {
    read.push_back({.kind = ConstraintKind::kRegex,
                    .text = std::move(*regex),
                    .source = fields.full_name("regex")});
  }
  for (OutputConstraint& one : read_guided(fields)) read.push_back(std::move(one));
  if (read.empty()) return {};
  if (read.size() > 1) {
    fields.fail(bad_field(read[1].source, formatted("{} and {} are both given, expected one",
                                                    read[0].source, read[1].source)));
  }
  return std::move(read.front());
}

// A last message of the assistant is the beginning of the answer, as it is to llama.cpp and Ollama,
// unless the request says otherwise in the words of vLLM. Not one with calls, whose results are
// missing, nor one before a constraint, which describes the whole answer.
void read_continuation(Fields& fields, ChatRequest& request) {
  put_results_in_order(request.conversation.messages);
  TemplateRequest& conversation = request.conversation;
  const auto adds = fields.boolean("add_generation_prompt");
  const auto continues = fields.boolean("continue_final_message");
  const Json last = conversation.messages.empty() ? Json() : conversation.messages.back();
  const bool is_own = last.is_object() && last.contains("role") && last["role"] == "assistant";
  const bool has_calls = is_own && last.contains("tool_calls") && !last["tool_calls"].empty();
  const bool is_held = request.constraint.kind != ConstraintKind::kNone;
  conversation.continue_final_message =
      continues ? *continues : !adds && is_own && !has_calls && !is_held;
  conversation.add_generation_prompt = adds.value_or(!conversation.continue_final_message);
  if (!continues.value_or(false)) return;
  if (adds.value_or(false)) {
    fields.fail(bad_field("continue_final_message",
                          "continue_final_message and add_generation_prompt are both true, "
                          "expected one"));
  } else if (!is_own || has_calls) {
    fields.fail(bad_field("continue_final_message",
                          "continue_final_message is true, but the last message is not a text of "
                          "the assistant"));
  } else if (is_held) {
    fields.fail(bad_field("continue_final_message",
                          formatted("continue_final_message is true, but {} describes a whole "
                                    "answer",
                                    request.constraint.source)));
  }
}

}  // namespace moeflux::serve
