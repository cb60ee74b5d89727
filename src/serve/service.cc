#include "serve/service.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "serve/answer_grammar.h"
#include "serve/http/http_text.h"
#include "serve/one_answer.h"
#include "serve/openai/chat_choices.h"
#include "serve/openai/text_choices.h"
#include "serve/service_call.h"
#include "serve/service_limits.h"
#include "serve/utc_time.h"

namespace moeflux::serve {

struct Service::Route {
  std::string_view method;
  std::string_view path;
  Handle handle;
};

const std::vector<Service::Route>& Service::routes() {
  // Every path may stand behind /v1 too.
  static const std::vector<Route> kRoutes = {
      {"POST", "/chat/completions", &Service::chat_completions},
      {"POST", "/chat/completions/input_tokens", &Service::count_input_tokens},
      {"POST", "/completions", &Service::completions},
      {"POST", "/tokenize", &Service::tokenize},
      {"POST", "/detokenize", &Service::detokenize},
      {"POST", "/apply-template", &Service::apply_template},
      {"POST", "/messages", &Service::messages},
      {"POST", "/messages/count_tokens", &Service::count_message_tokens},
      {"POST", "/responses", &Service::responses},
      {"POST", "/responses/input_tokens", &Service::count_response_tokens},
      {"POST", "/responses/compact", &Service::not_offered},
      {"GET", "/responses/{id}", &Service::stored_response},
      {"DELETE", "/responses/{id}", &Service::delete_response},
      {"GET", "/responses/{id}/input_items", &Service::stored_input},
      {"GET", "/", &Service::ollama_banner},
      {"GET", "/api/version", &Service::ollama_version},
      {"GET", "/api/tags", &Service::ollama_tags},
      {"GET", "/api/ps", &Service::ollama_running},
      {"POST", "/api/show", &Service::ollama_show},
      {"POST", "/api/chat", &Service::ollama_chat},
      {"POST", "/api/generate", &Service::ollama_generate},
      {"POST", "/api/pull", &Service::ollama_manages_nothing},
      {"POST", "/api/push", &Service::ollama_manages_nothing},
      {"POST", "/api/create", &Service::ollama_manages_nothing},
      {"POST", "/api/copy", &Service::ollama_manages_nothing},
      {"DELETE", "/api/delete", &Service::ollama_manages_nothing},
      {"POST", "/api/embed", &Service::ollama_manages_nothing},
      {"POST", "/api/embeddings", &Service::ollama_manages_nothing},
      {"GET", "/stream", &Service::resume_stream},
      {"DELETE", "/stream", &Service::delete_stream},
      {"GET", "/moeflux/telemetry", &Service::telemetry},
      {"GET", "/moeflux/plan", &Service::plan},
      {"GET", "/moeflux/conversations", &Service::conversations},
      {"GET", "/moeflux/conversations/{id}", &Service::saved_conversation},
      {"POST", "/moeflux/conversations/{id}", &Service::save_conversation},
      {"DELETE", "/moeflux/conversations/{id}", &Service::delete_conversation},
      {"GET", "/models", &Service::models},
      {"GET", "/models/{id}", &Service::model},
      {"GET", "/health", &Service::health},
      {"GET", "/props", &Service::props},
      {"GET", "/slots", &Service::slots},
      {"GET", "/metrics", &Service::show_metrics},
      {"GET", "/openapi.json", &Service::openapi},
      {"POST", "/embeddings", &Service::not_offered},
      {"POST", "/rerank", &Service::not_offered},
      {"POST", "/audio/transcriptions", &Service::not_offered},
      {"POST", "/audio/speech", &Service::not_offered},
      {"POST", "/images/generations", &Service::not_offered},
  };
  return kRoutes;
}

namespace {

/// Whether `path` is one that `pattern` stands for, and what it has in place of "{id}".
std::optional<std::string> match_path(std::string_view pattern, std::string_view path) {
  constexpr std::string_view kId = "{id}";
  const size_t at = pattern.find(kId);
  if (at == std::string_view::npos) return pattern == path ? std::optional("") : std::nullopt;
  const std::string_view front = pattern.substr(0, at);
  const std::string_view back = pattern.substr(at + kId.size());
  if (path.size() <= front.size() + back.size()) return std::nullopt;
  if (!path.starts_with(front) || !path.ends_with(back)) return std::nullopt;
  const std::string_view id = path.substr(at, path.size() - front.size() - back.size());
  if (id.find('/') != std::string_view::npos) return std::nullopt;
  return std::string(id);
}

ApiError unknown_path(const Request& request) {
  return {.status = 404,
          .type = "not_found_error",
          .message = formatted("no {} {} here; /openapi.json lists what there is", request.method,
                               request.path)};
}

ApiError too_long(size_t prompt, int64_t context) {
  return {.code = "context_length_exceeded",
          .message = formatted("the prompt has {} tokens, the context takes {} with at least one "
                               "to follow (see --ctx-size)",
                               prompt, context),
          .param = "messages"};
}

Result<std::unique_ptr<KeptTexts>> open_texts(const std::string& folder, std::string_view name,
                                              const KeptLimits& limits) {
  if (folder.empty()) return keep_texts_in_memory(limits);
  return keep_texts_in_folder(formatted("{}/{}", folder, name), limits);
}

TextRequest text_request(const GenerationFields& generation, int64_t choice) {
  return {.sampler = sampler_of_choice(generation.sampler, choice),
          .ignore_model_stop_tokens = generation.ignore_stop_tokens,
          .reuse = generation.reuse_states};
}

}  // namespace

Service::Service(std::shared_ptr<OpenModel> model, ServiceOptions options)
    : model_(std::move(model)),
      options_(std::move(options)),
      started_(unix_seconds()),
      format_(make_error(ErrorCode::kNotFound, "no chat template was looked for")),
      asked_(routes().size() + 1),
      streams_(options_.streams) {}

Service::~Service() {
  is_draining_ = true;
  end_watching();
}

Result<std::unique_ptr<Service>> Service::start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options) {
  if (!model->text.tokenizer.ok()) return model->text.tokenizer.error();
  if (options.model_name.empty()) options.model_name = folder_name(model->directory);
  std::unique_ptr<Service> service(new Service(std::move(model), std::move(options)));
  OpenModel& opened = *service->model_;
  service->fingerprint_ =
      formatted("moeflux-{}-{:016x}", MOEFLUX_VERSION, opened.engine->fingerprint());
  service->prompt_bytes_max_ = text_bytes_max(opened);
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(opened.directory));
  service->format_ =
      ChatFormat::load(*source, *opened.text.tokenizer, service->options_.template_text);
  MF_ASSIGN_OR_RETURN(service->responses_, open_texts(service->options_.folder, "responses",
                                                      service->options_.responses));
  MF_ASSIGN_OR_RETURN(service->conversations_, open_texts(service->options_.folder, "conversations",
                                                          service->options_.conversations));
  MF_ASSIGN_OR_RETURN(service->scheduler_,
                      Scheduler::start(service->model_, service->options_.scheduler));
  return service;
}

void Service::handle(const Request& request, std::shared_ptr<Response> response) {
  Call call{.request = request,
            .target = {.response = std::move(response),
                       .dialect = dialect_of(request.path),
                       .request_id = std::string(header(request, "x-request-id"))},
            .body = {},
            .id = {}};
  std::string_view path = request.path;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  std::string allowed;  // methods of that path
  for (size_t i = 0; i < routes().size(); ++i) {
    const Route& route = routes()[i];
    const auto id = match_path(route.path, path);
    if (!id) continue;
    if (!allowed.empty()) allowed += ", ";
    allowed += route.method;
    const bool is_head = request.method == "HEAD" && route.method == "GET";
    if (route.method != request.method && !is_head) continue;
    ++asked_[i];
    call.id = *id;
    if (route.method == "POST" && (is_draining_ || !read_body(call))) {
      if (is_draining_) call.fail(draining());
      return;
    }
    (this->*route.handle)(call);
    if (call.is_put_off) put_off(call, route.handle);
    return;
  }
  ++asked_.back();
  if (allowed.empty()) return call.fail(unknown_path(request));
  const ApiError error{
      .status = 405,
      .message = formatted("{} takes {}, not {}", request.path, allowed, request.method)};
  call.target.response->send(405, {{"Content-Type", "application/json"}, {"Allow", allowed}},
                             error_text(call.target.dialect, error, call.target.request_id));
}

bool Service::read_body(Call& call) {
  Result<Json> body = parse_json(
      call.request.body, "the body",
      {.values = kBodyValuesMax,
       .is_given_up = [&response = *call.target.response] { return response.is_closed(); }});
  if (!body.ok()) {
    call.fail(bad_field("", body.error().message()));
    return false;
  }
  if (const auto error = too_many_messages(*body, model_->engine->context_length())) {
    call.fail(*error);
    return false;
  }
  call.body = std::move(body).value();
  // The answer may be left and come back to under this name; lines of JSON have no numbers.
  const std::string_view conversation = header(call.request, "x-conversation-id");
  if (call.target.dialect != Dialect::kOllama && is_request_id(conversation)) {
    call.target.response = streams_.keep(std::string(conversation), call.target.response);
  }
  return true;
}

void Service::note_dropped(const ChatRequest& request) {
  constexpr size_t kKindsMax = 64;
  for (const std::string& type : request.dropped_tools) {
    {
      const std::lock_guard lock(mutex_);
      if (dropped_.size() >= kKindsMax || !dropped_.insert(type).second) continue;
    }
    note(formatted("tools of type {} are left out: nobody here can run them",
                   json_excerpt(Json(type))));
  }
}

void Service::note(const std::string& line) const {
  if (options_.on_note) options_.on_note(line);
}

std::vector<AskedCount> Service::asked() const {
  std::vector<AskedCount> asked;
  for (size_t i = 0; i < routes().size(); ++i) {
    asked.push_back({.method = std::string(routes()[i].method),
                     .path = std::string(routes()[i].path),
                     .count = asked_[i]});
  }
  asked.push_back({.method = "", .path = "other", .count = asked_.back()});
  return asked;
}

bool Service::knows(const std::string& asked) const {
  constexpr std::string_view kTag = ":latest";  // Ollama's clients may add it
  const bool is_tagged = asked.ends_with(kTag);
  const std::string name = is_tagged ? asked.substr(0, asked.size() - kTag.size()) : asked;
  const auto& aliases = options_.aliases;
  return name.empty() || name == options_.model_name ||
         std::find(aliases.begin(), aliases.end(), name) != aliases.end() ||
         std::find(aliases.begin(), aliases.end(), "*") != aliases.end();
}

AnswerIdentity Service::identity(std::string_view prefix,
                                 const GenerationFields& generation) const {
  return {.id = make_id(prefix),
          .created = unix_seconds(),
          .model = options_.model_name,
          .fingerprint = fingerprint_,
          .seed = generation.sampler.seed};
}

int64_t Service::tokens_max(const GenerationFields& generation, size_t prompt_tokens) const {
  const int64_t rest = model_->engine->context_length() - static_cast<int64_t>(prompt_tokens);
  return std::min(generation.tokens_max, rest);
}

std::optional<Service::Chat> Service::read_chat(Call& call, DecodedChat decoded) {
  const auto fail = [&](const ApiError& error) {
    call.fail(error);
    return std::nullopt;
  };
  if (!format_.ok()) return fail(api_error(format_.error()));
  if (const auto* error = std::get_if<ApiError>(&decoded)) return fail(*error);
  Fields fields(call.body);
  const std::string name = fields.text("model").value_or("");
  if (fields.problem()) return fail(*fields.problem());
  if (!knows(name)) return fail(unknown_model(name));
  auto& request = std::get<ChatRequest>(decoded);
  note_dropped(request);
  if (!may_fit(call, request.conversation.messages)) return std::nullopt;
  if (needs_compile(request) && !call.may_take_long) {
    call.is_put_off = true;
    return std::nullopt;
  }
  Result<ChatPrompt> prompt = (*format_)->prompt(request.conversation, local_time_now());
  if (!prompt.ok()) return fail(api_error(prompt.error()));
  AnswerConstraint constraint = compile_answer(*model_, **format_, prompt->tail, request,
                                               [&] { return call.target.response->is_closed(); });
  if (const auto* error = std::get_if<ApiError>(&constraint)) return fail(*error);
  return Chat{.request = std::move(request),
              .prompt = std::move(prompt).value(),
              .model = name,
              .constraint = std::get<std::shared_ptr<const Constraint>>(std::move(constraint))};
}

std::optional<TextRequest> Service::prompted_text(const Call& call,
                                                  const GenerationFields& generation,
                                                  const std::vector<TokenId>& prompt,
                                                  int64_t choice) const {
  const int64_t context = model_->engine->context_length();
  if (static_cast<int64_t>(prompt.size()) >= context) {
    call.fail(too_long(prompt.size(), context));
    return std::nullopt;
  }
  TextRequest text = text_request(generation, choice);
  text.prompt = prompt;
  text.tokens_max = tokens_max(generation, prompt.size());
  return text;
}

std::optional<std::vector<ChoiceJob>> Service::chat_jobs(
    const Call& call, const Chat& chat,
    const std::function<std::shared_ptr<AnswerListener>(size_t choice)>& listener) const {
  const ChatRequest& request = chat.request;
  std::vector<ChoiceJob> jobs;
  for (int64_t i = 0; i < request.generation.choices; ++i) {
    auto text = prompted_text(call, request.generation, chat.prompt.tokens, i);
    if (!text) return std::nullopt;
    text->top_logprobs = request.top_logprobs;
    text->constraint = chat.constraint;
    AnswerOptions options{.prompt_tail = chat.prompt.tail,
                          .tools = request.tools,
                          .stop_strings = request.generation.stop,
                          .reasoning_tokens_max = request.reasoning_tokens_max,
                          .one_call = request.one_call,
                          .id_seed = text->sampler.seed};
    jobs.emplace_back(std::move(*text),
                      std::make_shared<ChatAnswer>(*format_, std::move(options),
                                                   listener(static_cast<size_t>(i))));
  }
  return jobs;
}

void Service::chat_completions(Call& call) {
  const auto saved = go_on(call);
  if (!saved) return;
  const auto chat = read_chat(call, decode_chat_request(call.body, options_.defaults));
  if (!chat) return;
  const GenerationFields& generation = chat->request.generation;
  std::function<void(const AnswerPart&)> on_end;
  if (*saved) on_end = [one = *saved](const AnswerPart& answer) { one->add(answer); };
  const auto choices = std::make_shared<ChatChoices>(
      *scheduler_, call.target, TokenSpelling(tokenizer()),
      ChatChoicesOptions{.identity = identity("chatcmpl-", generation),
                         .stream = generation.stream,
                         .include_usage = generation.include_usage,
                         .return_progress = generation.return_progress,
                         .timings_per_token = generation.timings_per_token,
                         .with_logprobs = chat->request.top_logprobs >= 0,
                         .on_end = std::move(on_end)},
      static_cast<size_t>(generation.choices), *saved ? &jobs_ : nullptr);
  auto jobs = chat_jobs(call, *chat, [&](size_t choice) { return choices->listener(choice); });
  if (jobs) choices->start(std::move(*jobs));
}

void Service::answer_once(const Call& call, const Chat& chat,
                          std::unique_ptr<AnswerEncoder> encoder, JobThread* ends_on) {
  const auto answer = std::make_shared<OneAnswer>(
      *scheduler_, call.target, chat.request.generation.stream, std::move(encoder), ends_on);
  auto jobs = chat_jobs(call, chat, [&](size_t /*choice*/) { return answer->listener(); });
  if (jobs) answer->start(std::move(*jobs));
}

void Service::completions(Call& call) {
  if (const Json* prompt = Fields(call.body).find("prompt"); prompt && !may_fit(call, *prompt)) {
    return;
  }
  auto decoded = decode_completion_request(call.body, options_.defaults.sampler, tokenizer());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  const auto& request = std::get<CompletionRequest>(decoded);
  const std::string name = Fields(call.body).text("model").value_or("");
  if (!knows(name)) return call.fail(unknown_model(name));
  const GenerationFields& generation = request.generation;
  const int64_t context = model_->engine->context_length();
  for (const auto& prompt : request.prompts) {
    // The whole context may be scored, if nothing has to follow.
    const bool fits = static_cast<int64_t>(prompt.size()) < context + (generation.tokens_max == 0);
    if (!fits) return call.fail(too_long(prompt.size(), context));
  }
  if (request.constraint.kind != ConstraintKind::kNone && !call.may_take_long) {
    call.is_put_off = true;
    return;
  }
  const AnswerConstraint constraint = compile_text(*model_, request.constraint);
  if (const auto* error = std::get_if<ApiError>(&constraint)) return call.fail(*error);
  const size_t count = request.prompts.size() * static_cast<size_t>(generation.choices);
  const auto choices =
      std::make_shared<TextChoices>(*scheduler_, call.target, TokenSpelling(tokenizer()),
                                    TextChoicesOptions{.identity = identity("cmpl-", generation),
                                                       .stream = generation.stream,
                                                       .include_usage = generation.include_usage,
                                                       .with_logprobs = request.logprobs >= 0,
                                                       .prompts = request.prompts.size()},
                                    count);
  std::vector<ChoiceJob> jobs;
  for (const auto& prompt : request.prompts) {
    for (int64_t i = 0; i < generation.choices; ++i) {
      TextRequest text = text_request(generation, i);
      text.prompt = prompt;
      text.tokens_max = tokens_max(generation, prompt.size());
      text.top_logprobs = request.logprobs;
      text.constraint = std::get<std::shared_ptr<const Constraint>>(constraint);
      text.prompt_logprobs = request.echo && request.logprobs >= 0;
      const auto listener = choices->listener(jobs.size());
      jobs.emplace_back(std::move(text),
                        std::make_shared<Completion>(tokenizer(), request, prompt, listener));
    }
  }
  choices->start(std::move(jobs));
}

void Service::count_input_tokens(Call& call) {
  const auto saved = go_on(call);
  if (!saved) return;
  const auto chat = read_chat(call, decode_chat_request(call.body, options_.defaults));
  if (!chat) return;
  call.answer({{"object", "response.input_tokens"}, {"input_tokens", chat->prompt.tokens.size()}});
}

// In one object what OpenAI's and Anthropic's clients look for.
Json Service::model_json() const {
  const ModelSpec& spec = model_->engine->spec();
  const auto started = std::chrono::system_clock::time_point(std::chrono::seconds(started_));
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", started_},
          {"owned_by", "moeflux"},
          {"type", "model"},
          {"display_name", options_.model_name},
          {"created_at", utc_text(started)},
          {"meta", {{"n_vocab", spec.vocab_size}, {"n_ctx", model_->engine->context_length()}}}};
}

void Service::models(Call& call) {
  // Codex asks for `models`.
  call.answer({{"object", "list"},
               {"data", Json::array({model_json()})},
               {"has_more", false},
               {"first_id", options_.model_name},
               {"last_id", options_.model_name},
               {"models", Json::array()}});
}

void Service::model(Call& call) {
  if (!knows(call.id)) return call.fail(unknown_model(call.id));
  call.answer(model_json());
}

ApiError Service::unknown_model(const std::string& name) const {
  return {.status = 404,
          .type = "not_found_error",
          .code = "model_not_found",
          .message = formatted("no model \"{}\", this server has \"{}\" (see --model-alias)", name,
                               options_.model_name),
          .param = "model"};
}

}  // namespace moeflux::serve
