#include "serve/ollama/request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/format.h"
#include "schedule/text_request.h"
#include "serve/keep_alive.h"
#include "serve/ollama/field_list.h"
#include "serve/ollama/messages.h"
#include "serve/openai/constraint_fields.h"
#include "serve/request/left_out_media.h"

namespace moeflux::serve {
namespace {

/// Editors' completions name every token and word that ends a gap: more than OpenAI lets through.
constexpr size_t kEndsMax = 64;

void read_options(Fields& fields, const RequestDefaults& defaults, int64_t context_length,
                  OllamaRequest& request) {
  const Json* found = fields.object("options");
  Json given = found == nullptr ? Json::object() : *found;
  // LiteLLM and Open WebUI send OpenAI's frequency_penalty under this name, whose 0 is none.
  const auto penalty = given.find("repeat_penalty");
  if (penalty != given.end() && *penalty == 0) given.erase(penalty);
  Fields options(given, ollama_option_list(), "options");
  GenerationFields& generation = request.chat.generation;
  generation = read_shared_generation(options, defaults.sampler);
  if (auto stop = options.texts("stop", kEndsMax)) generation.stop = std::move(*stop);
  const int64_t any = std::numeric_limits<int64_t>::max();
  // Negative: until the text or the context ends.
  const auto most = options.integer("num_predict", {-any, any});
  generation.tokens_max = std::max<int64_t>(most.value_or(-1), -1);
  const auto context = options.integer("num_ctx", {-any, any});
  if (context && *context > context_length) request.context_asked = *context;
  if (context && *context > 0 && *context < context_length) request.context_max = *context;
  if (options.problem()) fields.fail(*options.problem());
  generation.ignored = options.ignored();
}

// Names that nobody has read, of the request and its options. After all else.
void note_ignored(const Fields& fields, OllamaRequest& request) {
  (void)fields.has("model");  // read by who asks for the answer
  const std::vector<std::string> more = fields.ignored();
  std::vector<std::string>& all = request.chat.generation.ignored;
  all.insert(all.begin(), more.begin(), more.end());
}

void read_think(Fields& fields, ChatRequest& chat) {
  const Json* think = fields.find("think");
  if (think == nullptr) return;
  if (think->is_boolean()) {
    chat.conversation.variables["enable_thinking"] = *think;
  } else if (think->is_string()) {
    chat.conversation.variables["enable_thinking"] = true;
    set_effort(chat, think->get<std::string>());
  } else {
    fields.fail(bad_field(
        "think", formatted("think is {}, expected true, false or a level", json_excerpt(*think))));
  }
}

OutputConstraint read_format(Fields& fields) {
  const Json* format = fields.find("format");
  if (format == nullptr || *format == "") return {};
  if (*format == "json") return {.kind = ConstraintKind::kJsonObject, .source = "format"};
  if (format->is_object()) return held_to_schema(*format, "format");
  fields.fail(bad_field(
      "format", formatted("format is {}, expected \"json\" or a schema", json_excerpt(*format))));
  return {};
}

void read_ollama_tools(Fields& fields, ChatRequest& chat) {
  const Json* given = fields.array("tools");
  Json tools = given == nullptr ? Json::array() : *given;
  for (size_t i = 0; i < tools.size(); ++i) {
    Fields tool(tools[i], formatted("tools[{}]", i));
    const Json* function = tool.object("function");
    if (function == nullptr) {
      const std::string name = tool.full_name("function");
      tool.fail(bad_field(name, name + " is absent, expected the tool's name and parameters"));
    } else if (Fields inner(*function, tool.full_name("function")); !inner.text("name")) {
      const std::string name = inner.full_name("name");
      tool.fail(inner.problem().value_or(bad_field(name, name + " is absent")));
    }
    if (tool.problem()) return fields.fail(*tool.problem());
  }
  set_tools(fields, chat, std::move(tools), read_tool_choice(fields, "tool_choice"), "tool_choice");
}

void read_ollama_logprobs(Fields& fields, ChatRequest& chat) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const int64_t top = fields.integer("top_logprobs", {0, kTopLogprobsMax}).value_or(0);
  if (wanted) chat.top_logprobs = static_cast<int32_t>(top);
}

// The service has read it; see ModelUse.
void read_unload(Fields& fields, OllamaRequest& request) {
  const Json* time = fields.find("keep_alive");
  if (time == nullptr) return;
  const auto keeps = read_keep_alive(*time);
  request.unloads = request.is_empty && keeps == KeepAlive(0);
  if (keeps) return;
  fields.fail(bad_field("keep_alive", formatted("keep_alive is {}, expected seconds or a time as "
                                                "\"5m\"",
                                                json_excerpt(*time))));
}

// The fields that both requests have. A prompt beyond the context is refused, and an answer ends
// with it: nothing is cut off in front, whatever `truncate` and `shift` say.
void read_shared(Fields& fields, const RequestDefaults& defaults, int64_t context_length,
                 OllamaRequest& request) {
  ChatRequest& chat = request.chat;
  read_options(fields, defaults, context_length, request);
  chat.reasoning_tokens_max = defaults.reasoning_tokens_max;
  chat.conversation.variables = defaults.template_variables;
  read_think(fields, chat);
  read_template_variables(fields, chat);
  chat.constraint = read_constraint(fields, read_format(fields));
  read_ollama_logprobs(fields, chat);
  read_unload(fields, request);
  for (const char* name : {"truncate", "shift"}) fields.boolean(name);
  fields.boolean("return_progress");  // the service has read it; see LoadingStream
  chat.generation.stream = fields.boolean("stream").value_or(true);
  request.shows_prompt = fields.boolean("_debug_render_only").value_or(false);
}

std::vector<TokenId> read_context(Fields& fields) {
  std::vector<TokenId> context;
  const Json* given = fields.array("context");
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    const std::string name = formatted("context[{}]", i);
    const Result<int64_t> id = json_int((*given)[i], name);
    if (!id.ok() || *id < 0 || *id >= kTokenEnd) {
      fields.fail(bad_field(name, formatted("{} is {}, expected the id of a token", name,
                                            json_excerpt((*given)[i]))));
      return {};
    }
    context.push_back(static_cast<TokenId>(*id));
  }
  return context;
}

// One question, perhaps with a system's words, or a text as it is.
void read_prompt(Fields& fields, OllamaRequest& request) {
  request.prompt = fields.text("prompt").value_or("");
  request.suffix = fields.text("suffix").value_or("");
  request.context = read_context(fields);
  const std::string system = fields.text("system").value_or("");
  if (auto text = fields.text("template"); text && !text->empty()) {
    request.chat_template = std::move(*text);
  }
  if (const Json* images = fields.array("images"); images != nullptr && !images->empty()) {
    fields.fail(media_in_question("images", "image"));
  }
  request.is_raw = fields.boolean("raw").value_or(false);
  request.is_empty = request.prompt.empty() && request.suffix.empty();
  const char* beside = !system.empty()            ? "system"
                       : request.chat_template    ? "template"
                       : !request.context.empty() ? "context"
                                                  : nullptr;
  if (request.is_raw && beside != nullptr) {
    fields.fail(bad_field(
        beside, formatted("{} is given with raw, which takes the prompt as it is", beside)));
  }
  Json& messages = request.chat.conversation.messages;
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", request.prompt}});
}

}  // namespace

DecodedOllama decode_ollama_chat(const Json& body, const RequestDefaults& defaults,
                                 int64_t context_length) {
  Fields fields(body, ollama_chat_field_list());
  OllamaRequest request;
  request.chat.conversation.messages = read_ollama_messages(fields);
  request.is_empty = request.chat.conversation.messages.empty();
  read_shared(fields, defaults, context_length, request);
  read_ollama_tools(fields, request.chat);
  read_continuation(fields, request.chat);
  note_ignored(fields, request);
  if (fields.problem()) return *fields.problem();
  return request;
}

DecodedOllama decode_ollama_generate(const Json& body, const RequestDefaults& defaults,
                                     int64_t context_length) {
  Fields fields(body, ollama_generate_field_list());
  OllamaRequest request;
  read_prompt(fields, request);
  read_shared(fields, defaults, context_length, request);
  note_ignored(fields, request);
  if (fields.problem()) return *fields.problem();
  return request;
}

}  // namespace moeflux::serve
