// Ollama's interface.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/format.h"
#include "plan/model_sizes.h"
#include "serve/call.h"
#include "serve/keep_alive.h"
#include "serve/ollama/answer.h"
#include "serve/ollama/handlers.h"
#include "serve/ollama/model_card.h"
#include "serve/ollama/request.h"
#include "serve/request/fill_in.h"
#include "serve/wire/utc_time.h"
#include "text/encoding/spec_fields.h"

namespace moeflux::serve {
namespace {

/// The version of Ollama whose interface this is: clients look whether it is new enough.
/// From 0.12.11 on there are ids of calls and log-probabilities.
constexpr std::string_view kInterfaceVersion = "0.13.0";

std::string now_text() { return utc_text(std::chrono::system_clock::now()); }

void version(Call& call) { call.answer({{"version", kInterfaceVersion}}); }

Json capabilities(Context& service) {
  Json capabilities = Json::array({"completion"});
  if (service.format().ok()) {
    const ChatTemplate& texts = (*service.format())->chat_template();
    if (texts.capabilities(true).tools) capabilities.push_back("tools");
    if (texts.capabilities(false).reasoning) capabilities.push_back("thinking");
  }
  if (find_fill_in_tokens(service.tokenizer())) capabilities.push_back("insert");
  const Result<EmbeddingSpec>& embedding = service.model().text.embedding;
  if (embedding.ok() && !embedding->source.empty()) capabilities.push_back("embedding");
  return capabilities;
}

Json ollama_model_json(ServiceState& state, const ModelStatus& model) {
  const std::string& name = model.listed.name;
  const auto started = std::chrono::system_clock::time_point(std::chrono::seconds(state.started()));
  // With a tag, as Ollama has them: Open WebUI asks for no other.
  const bool is_tagged = name.find(':') != std::string::npos;
  const std::string tagged = is_tagged ? name : name + ":latest";
  Json json = {{"name", tagged}, {"model", tagged}, {"modified_at", utc_text(started)}};
  if (!model.loaded) {
    json["size"] = model.listed.bytes;
    json["digest"] = "";
    json["details"] = unloaded_details(model.listed.format);
    return json;
  }
  const Engine& engine = *model.loaded->model().engine;
  json["size"] = measure_model(engine.loaded()).total_bytes();
  json["digest"] = formatted("{:016x}", engine.fingerprint());
  json["details"] = model_details(engine);
  json["capabilities"] = capabilities(*model.loaded);
  return json;
}

void tags(Call& call) {
  Json models = Json::array();
  for (const ModelStatus& model : call.models.list()) {
    models.push_back(ollama_model_json(call.state, model));
  }
  call.answer({{"models", std::move(models)}});
}

void running(Call& call) {
  Json models = Json::array();
  for (const ModelStatus& one : call.models.list()) {
    if (!one.loaded) continue;
    Json model = ollama_model_json(call.state, one);
    // One that stays, or is in use, has no end yet.
    const auto far = std::chrono::system_clock::now() + std::chrono::hours(24 * 365);
    model["expires_at"] = utc_text(one.expires.value_or(far));
    model["size_vram"] = one.loaded->model().engine->memory_plan().on_device.total_bytes();
    model["context_length"] = one.loaded->context_length();
    models.push_back(std::move(model));
  }
  call.answer({{"models", std::move(models)}});
}

void show(Call& call) {
  Fields fields(call.body);
  const std::string name = fields.text(fields.has("model") ? "model" : "name").value_or("");
  if (fields.problem()) return call.fail(*fields.problem());
  const auto status = call.models.find(name);
  if (!status) return call.fail(call.models.unknown(name));
  const Json model = ollama_model_json(call.state, *status);
  const std::string& own_name = status->listed.name;
  if (!status->loaded) {
    // The rest is known once it is loaded.
    return call.answer({{"license", ""},
                        {"modelfile", modelfile(own_name, "", "")},
                        {"parameters", ""},
                        {"template", ""},
                        {"system", ""},
                        {"details", model["details"]},
                        {"model_info", {{"general.basename", own_name}}},
                        {"capabilities", Json::array({"completion"})},
                        {"modified_at", model["modified_at"]}});
  }
  Context& service = *status->loaded;
  const Engine& engine = *service.model().engine;
  const std::string text =
      service.format().ok() ? (*service.format())->template_text() : std::string();
  const std::string parameters = parameter_lines(engine, service.options().defaults.sampler);
  call.answer({{"license", license_text(service.model().directory)},
               {"modelfile", modelfile(own_name, parameters, text)},
               {"parameters", parameters},
               {"template", text},
               {"system", ""},
               {"details", model["details"]},
               {"model_info", model_info(engine, own_name)},
               {"capabilities", model["capabilities"]},
               {"modified_at", model["modified_at"]}});
}

using RawPrompt = std::variant<std::vector<TokenId>, ApiError>;

// A text as it is, or two with a gap between them.
RawPrompt raw_prompt(const Tokenizer& tokenizer, const OllamaRequest& request) {
  Result<std::vector<TokenId>> prompt = std::vector<TokenId>();
  if (request.suffix.empty()) {
    prompt =
        tokenizer.encode(request.prompt, {.add_special_tokens = true, .match_added_tokens = true});
  } else {
    const auto tokens = find_fill_in_tokens(tokenizer);
    if (!tokens) {
      return unsupported_field("suffix",
                               "suffix is given, and the model's vocabulary has no tokens around a "
                               "gap to fill (<|fim_prefix|> and the like)");
    }
    prompt = fill_in_prompt(tokenizer, *tokens, request.prompt, request.suffix);
  }
  if (!prompt.ok()) return api_error(prompt.error());
  return std::move(prompt).value();
}

// The tokens of an answer before, which a prompt goes on from. A context that cannot be is the
// answer.
std::optional<ApiError> put_before(Context& service, const std::vector<TokenId>& context,
                                   ChatPrompt& prompt) {
  if (context.empty()) return std::nullopt;
  const int64_t vocab_size = service.model().engine->spec().vocab_size;
  for (size_t i = 0; i < context.size(); ++i) {
    if (context[i] < vocab_size) continue;
    const std::string name = formatted("context[{}]", i);
    return bad_field(name, formatted("{} is {}, the model's vocabulary has {} tokens", name,
                                     context[i], vocab_size));
  }
  // Tokens that begin any text stand before the context already.
  const std::vector<TokenId>& first = service.tokenizer().prefix();
  std::vector<TokenId>& tokens = prompt.tokens;
  const bool begins_anew = !first.empty() && tokens.size() >= first.size() &&
                           std::equal(first.begin(), first.end(), tokens.begin());
  if (begins_anew) {
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(first.size()));
  }
  tokens.insert(tokens.begin(), context.begin(), context.end());
  prompt.text.insert(0, service.tokenizer().decode(context));
  return std::nullopt;
}

// The request's own context ends the answer, and has room for the prompt or is the answer.
std::optional<ApiError> limit_context(const std::optional<int64_t>& context_max, size_t prompt,
                                      GenerationFields& generation) {
  if (!context_max) return std::nullopt;
  const int64_t rest = *context_max - static_cast<int64_t>(prompt);
  int64_t& most = generation.tokens_max;
  if (rest < (most == 0 ? 0 : 1)) {
    return ApiError{.type = std::string(kTooLong),
                    .code = "context_length_exceeded",
                    .message = formatted("options.num_ctx is {}, the prompt has {} tokens",
                                         *context_max, prompt),
                    .param = "options.num_ctx",
                    .details = {{"n_prompt_tokens", prompt}, {"n_ctx", *context_max}}};
  }
  most = most < 0 ? rest : std::min(most, rest);
  return std::nullopt;
}

void generate_raw(Call& call, const OllamaRequest& request,
                  std::unique_ptr<OllamaEncoder> encoder) {
  Context& service = call.service();
  if (!service.may_fit(call, Json::array({request.prompt, request.suffix}))) return;
  RawPrompt read = raw_prompt(service.tokenizer(), request);
  if (const auto* error = std::get_if<ApiError>(&read)) return call.fail(*error);
  auto& prompt = std::get<std::vector<TokenId>>(read);
  if (request.shows_prompt) return call.answer(encoder->shown(service.tokenizer().decode(prompt)));
  GenerationFields generation = request.chat.generation;
  if (const auto error = limit_context(request.context_max, prompt.size(), generation)) {
    return call.fail(*error);
  }
  service.complete(call,
                   {.generation = std::move(generation),
                    .prompts = {std::move(prompt)},
                    .logprobs = request.chat.top_logprobs,
                    .constraint = request.chat.constraint},
                   std::move(encoder));
}

// A template of the request's that is another than the model's.
bool has_other_template(Context& service, const OllamaRequest& request) {
  return request.chat_template && service.format().ok() &&
         *request.chat_template != (*service.format())->template_text();
}

void answer(Call& call, DecodedOllama decoded, bool is_chat) {
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  Context& service = call.service();
  auto& request = std::get<OllamaRequest>(decoded);
  if (request.context_asked) {
    service.state().note(formatted("a request has options.num_ctx {}: the server's context of {} "
                                   "tokens counts (see --ctx-size)",
                                   *request.context_asked, service.context_length()),
                         /*once=*/true);
  }
  OllamaAnswerOptions options{
      .model = service.options().model_name, .is_chat = is_chat, .clock = now_text};
  service.state().note_ignored(request.chat.generation.ignored);
  options.ignored = request.chat.generation.ignored;
  if (request.chat.top_logprobs >= 0) options.spelling.emplace(service.tokenizer());
  if (request.is_empty) {
    // One that the server was started with stays.
    const bool leaves = request.unloads && !call.models.unload(options.model);
    return call.answer(OllamaEncoder(std::move(options)).moved(leaves ? "unload" : "load"));
  }
  if (request.is_raw || !request.suffix.empty()) {
    return generate_raw(call, request, std::make_unique<OllamaEncoder>(std::move(options)));
  }
  if (has_other_template(service, request)) {
    return call.fail(unsupported_field(
        "template",
        "template is not the model's own (see /api/show): templates are chosen when the "
        "server starts, by --chat-template-file"));
  }
  const bool shows_prompt = request.shows_prompt;
  const std::optional<int64_t> context_max = request.context_max;
  const std::vector<TokenId> context = std::move(request.context);
  auto chat = service.read_chat(call, std::move(request.chat));
  if (!chat) return;
  if (const auto error = put_before(service, context, chat->prompt)) return call.fail(*error);
  if (shows_prompt) return call.answer(OllamaEncoder(std::move(options)).shown(chat->prompt.text));
  const auto error =
      limit_context(context_max, chat->prompt.tokens.size(), chat->request.generation);
  if (error) return call.fail(*error);
  if (!is_chat) options.prompt = chat->prompt.tokens;
  service.answer(call, *chat, std::make_unique<OllamaEncoder>(std::move(options)));
}

void chat(Call& call) {
  answer(call,
         decode_ollama_chat(call.body, call.service().options().defaults,
                            call.service().context_length()),
         true);
}

void generate(Call& call) {
  answer(call,
         decode_ollama_generate(call.body, call.service().options().defaults,
                                call.service().context_length()),
         false);
}

void makes_nothing(Call& call) {
  call.fail({.status = 501,
             .message = formatted("{} is not offered: models are made by moeflux quantize and pack",
                                  call.request.path)});
}

Json empty_chat_line(const std::string& model) {
  return {{"model", model},
          {"created_at", now_text()},
          {"message", {{"role", "assistant"}, {"content", ""}}},
          {"done", false}};
}
Json empty_text_line(const std::string& model) {
  return {{"model", model}, {"created_at", now_text()}, {"response", ""}, {"done", false}};
}

// A request to leave is no reason to come.
bool leave_unloaded(const Call& call, const char* question, const std::string& model) {
  const Json& time = spec_field(call.body, "keep_alive");
  if (time.is_null() || read_keep_alive(time) != KeepAlive(0)) return false;
  for (const char* name : {question, "suffix"}) {
    const Json& asked = spec_field(call.body, name);
    if (!asked.empty() && asked != "") return false;
  }
  const bool is_chat = std::string_view(question) == "messages";
  call.answer(
      OllamaEncoder({.model = model, .is_chat = is_chat, .clock = now_text}).moved("unload"));
  return true;
}
bool leave_unloaded_chat(const Call& call, const std::string& model) {
  return leave_unloaded(call, "messages", model);
}
bool leave_unloaded_text(const Call& call, const std::string& model) {
  return leave_unloaded(call, "prompt", model);
}

constexpr Route kOllamaRoutes[] = {
    {"GET", "/api/version", &version, RouteKind::kAtOnce},
    {"GET", "/api/tags", &tags, RouteKind::kAtOnce},
    {"GET", "/api/ps", &running, RouteKind::kNoModel},
    {"POST", "/api/show", &show, RouteKind::kNoModel},
    {"POST", "/api/chat", &chat, RouteKind::kUsual, &empty_chat_line, &leave_unloaded_chat},
    {"POST", "/api/generate", &generate, RouteKind::kUsual, &empty_text_line, &leave_unloaded_text},
    {"POST", "/api/pull", &pull_model, RouteKind::kNoModel},
    {"POST", "/api/push", &makes_nothing, RouteKind::kNoModel},
    {"POST", "/api/create", &makes_nothing, RouteKind::kNoModel},
    {"POST", "/api/copy", &copy_model, RouteKind::kNoModel},
    {"DELETE", "/api/delete", &delete_model, RouteKind::kNoModel},
    {"POST", "/api/embed", &ollama_embed, RouteKind::kTexts},
    {"POST", "/api/embeddings", &ollama_embeddings, RouteKind::kTexts},
};

}  // namespace

extern const Interface ollama_interface = {
    .home = "/api",
    .routes = kOllamaRoutes,
    .error_text = &ollama_error_text,
    // Between lines of JSON there are no comments, and lines have no numbers.
    .stream = {.content_type = "application/x-ndjson", .keep_alive = "", .is_events = false},
    // Ollama reads whatever comes, and its clients count on that: LiteLLM sends no type, curl that
    // of forms, fetch() that of text. A page's requests have an Origin, which is looked at.
    .takes_any_type = true,
    .keeps_alive = true,
    .streams_by_default = true,
};

}  // namespace moeflux::serve
