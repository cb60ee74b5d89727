#include "serve/service.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "serve/answer_grammar.h"
#include "serve/chat_choices.h"
#include "serve/metrics.h"
#include "serve/openapi.h"
#include "serve/text_choices.h"

namespace moeflux::serve {

struct Service::Call {
  const Request& request;
  std::shared_ptr<Response> response;
  Json body;

  void answer(const Json& json) const { answer(200, json); }
  void answer(int status, const Json& json) const {
    response->send(status, {{"Content-Type", "application/json"}}, dump_json(json));
  }
  void fail(const ApiError& error) const { answer(error.status, error_body(error)); }
};

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
      {"GET", "/models", &Service::models},
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

std::string folder_name(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.substr(path.find_last_of('/') + 1);
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

Json capabilities_json(const TemplateCapabilities& can) {
  return {{"system_role", can.system_role},     {"tools", can.tools},
          {"tool_calls", can.tool_calls},       {"parallel_tool_calls", can.parallel_calls},
          {"tool_results", can.tool_results},   {"reasoning", can.reasoning},
          {"content_parts", can.content_parts}, {"switches", can.switches}};
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
      format_(make_error(ErrorCode::kNotFound, "no chat template was looked for")) {}

Service::~Service() = default;

Result<std::unique_ptr<Service>> Service::start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options) {
  if (!model->text.tokenizer.ok()) return model->text.tokenizer.error();
  if (options.model_name.empty()) options.model_name = folder_name(model->directory);
  std::unique_ptr<Service> service(new Service(std::move(model), std::move(options)));
  OpenModel& opened = *service->model_;
  service->fingerprint_ =
      formatted("moeflux-{}-{:016x}", MOEFLUX_VERSION, opened.engine->fingerprint());
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(opened.directory));
  service->format_ =
      ChatFormat::load(*source, *opened.text.tokenizer, service->options_.template_text);
  MF_ASSIGN_OR_RETURN(service->scheduler_,
                      Scheduler::start(service->model_, service->options_.scheduler));
  return service;
}

void Service::drain() { scheduler_->drain(); }

void Service::handle(const Request& request, std::shared_ptr<Response> response) {
  Call call{.request = request, .response = std::move(response), .body = {}};
  std::string_view path = request.path;
  if (path.starts_with("/v1/")) path.remove_prefix(3);
  const Route* same_path = nullptr;
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    same_path = &route;
    const bool is_head = request.method == "HEAD" && route.method == "GET";
    if (route.method != request.method && !is_head) continue;
    if (route.method == "POST") {
      Result<Json> body = parse_json(request.body, "the body");
      if (!body.ok()) return call.fail(bad_field("", body.error().message()));
      call.body = std::move(body).value();
    }
    return (this->*route.handle)(call);
  }
  if (same_path == nullptr) return call.fail(unknown_path(request));
  const ApiError error{
      .status = 405,
      .message = formatted("{} takes {}, not {}", request.path, same_path->method, request.method)};
  call.response->send(
      405, {{"Content-Type", "application/json"}, {"Allow", std::string(same_path->method)}},
      dump_json(error_body(error)));
}

bool Service::knows(const std::string& name) const {
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

void Service::chat_completions(Call& call) {
  if (!format_.ok()) return call.fail(api_error(format_.error()));
  auto decoded = decode_chat_request(call.body, options_.defaults);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  auto& chat = std::get<ChatRequest>(decoded);
  const std::string name = Fields(call.body).text("model").value_or("");
  if (!knows(name)) return call.fail(unknown_model(name));
  if (const auto refusal = check_constraints(chat)) return call.fail(*refusal);
  const std::shared_ptr<const ChatFormat>& format = *format_;
  Result<ChatPrompt> prompt = format->prompt(chat.conversation, local_time_now());
  if (!prompt.ok()) return call.fail(api_error(prompt.error()));
  const int64_t context = model_->engine->context_length();
  if (static_cast<int64_t>(prompt->tokens.size()) >= context) {
    return call.fail(too_long(prompt->tokens.size(), context));
  }
  const GenerationFields& generation = chat.generation;
  const auto choices = std::make_shared<ChatChoices>(
      *scheduler_, call.response, TokenSpelling(tokenizer()),
      ChatChoicesOptions{.identity = identity("chatcmpl-", generation),
                         .stream = generation.stream,
                         .include_usage = generation.include_usage,
                         .return_progress = generation.return_progress,
                         .timings_per_token = generation.timings_per_token,
                         .with_logprobs = chat.top_logprobs >= 0},
      static_cast<size_t>(generation.choices));
  std::vector<ChoiceJob> jobs;
  for (int64_t i = 0; i < generation.choices; ++i) {
    TextRequest text = text_request(generation, i);
    text.prompt = prompt->tokens;
    text.tokens_max = tokens_max(generation, prompt->tokens.size());
    text.top_logprobs = chat.top_logprobs;
    AnswerOptions options{.prompt_tail = prompt->tail,
                          .tools = chat.tools,
                          .stop_strings = generation.stop,
                          .reasoning_tokens_max = chat.reasoning_tokens_max,
                          .one_call = chat.one_call,
                          .id_seed = text.sampler.seed};
    jobs.emplace_back(std::move(text),
                      std::make_shared<ChatAnswer>(format, std::move(options),
                                                   choices->listener(static_cast<size_t>(i))));
  }
  choices->start(std::move(jobs));
}

void Service::completions(Call& call) {
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
  const size_t count = request.prompts.size() * static_cast<size_t>(generation.choices);
  const auto choices =
      std::make_shared<TextChoices>(*scheduler_, call.response, TokenSpelling(tokenizer()),
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
      text.prompt_logprobs = request.echo && request.logprobs >= 0;
      const auto listener = choices->listener(jobs.size());
      jobs.emplace_back(std::move(text),
                        std::make_shared<Completion>(tokenizer(), request, prompt, listener));
    }
  }
  choices->start(std::move(jobs));
}

void Service::count_input_tokens(Call& call) {
  if (!format_.ok()) return call.fail(api_error(format_.error()));
  const auto decoded = decode_chat_request(call.body, options_.defaults);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  const auto prompt =
      (*format_)->prompt(std::get<ChatRequest>(decoded).conversation, local_time_now());
  if (!prompt.ok()) return call.fail(api_error(prompt.error()));
  call.answer({{"object", "response.input_tokens"}, {"input_tokens", prompt->tokens.size()}});
}

void Service::tokenize(Call& call) {
  Fields fields(call.body);
  const auto text = fields.text("content");
  const bool add_special = fields.boolean("add_special").value_or(false);
  const bool parse_special = fields.boolean("parse_special").value_or(true);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  if (!text) fields.fail(bad_field("content", "content is absent, expected a string"));
  if (fields.problem()) return call.fail(*fields.problem());
  const auto ids = tokenizer().encode(
      *text, {.add_special_tokens = add_special, .match_added_tokens = parse_special});
  if (!ids.ok()) return call.fail(api_error(ids.error()));
  Json tokens = Json::array();
  const TokenSpelling spelling(tokenizer());
  for (const TokenId id : *ids) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", spelling.text(id)}, {"bytes", spelling.bytes(id)}});
    } else {
      tokens.push_back(id);
    }
  }
  call.answer({{"tokens", std::move(tokens)}});
}

void Service::detokenize(Call& call) {
  Fields fields(call.body);
  const Json* tokens = fields.array("tokens");
  std::vector<TokenId> ids;
  for (size_t i = 0; tokens != nullptr && i < tokens->size(); ++i) {
    const Result<int64_t> id = json_int((*tokens)[i], "tokens");
    const bool is_token = id.ok() && *id >= 0 && *id < tokenizer().vocab_size();
    if (!is_token) {
      fields.fail(bad_field(formatted("tokens[{}]", i),
                            formatted("tokens[{}] is {}, expected an id below {}", i,
                                      json_excerpt((*tokens)[i]), tokenizer().vocab_size())));
      break;
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  if (tokens == nullptr) fields.fail(bad_field("tokens", "tokens is absent, expected ids"));
  if (fields.problem()) return call.fail(*fields.problem());
  call.answer({{"content", tokenizer().decode(ids)}});
}

void Service::apply_template(Call& call) {
  if (!format_.ok()) return call.fail(api_error(format_.error()));
  const auto decoded = decode_chat_request(call.body, options_.defaults);
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  TemplateRequest request = std::get<ChatRequest>(decoded).conversation;
  Fields fields(call.body);
  request.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
  if (fields.problem()) return call.fail(*fields.problem());
  const auto prompt = (*format_)->prompt(request, local_time_now());
  if (!prompt.ok()) return call.fail(api_error(prompt.error()));
  call.answer({{"prompt", prompt->text}});
}

void Service::models(Call& call) {
  const ModelSpec& spec = model_->engine->spec();
  const Json model = {
      {"id", options_.model_name},
      {"object", "model"},
      {"created", started_},
      {"owned_by", "moeflux"},
      {"meta", {{"n_vocab", spec.vocab_size}, {"n_ctx", model_->engine->context_length()}}}};
  // Codex asks for `models`.
  call.answer({{"object", "list"}, {"data", Json::array({model})}, {"models", Json::array()}});
}

void Service::health(Call& call) { call.answer({{"status", "ok"}}); }

void Service::props(Call& call) {
  const SamplerOptions& sampler = options_.defaults.sampler;
  Json json = {{"default_generation_settings",
                {{"n_ctx", model_->engine->context_length()},
                 {"params",
                  {{"temperature", sampler.temperature},
                   {"top_k", sampler.top_k},
                   {"top_p", sampler.top_p},
                   {"min_p", sampler.min_p},
                   {"repeat_penalty", sampler.repeat_penalty},
                   {"repeat_last_n", sampler.repeat_last_n},
                   {"presence_penalty", sampler.presence_penalty},
                   {"frequency_penalty", sampler.frequency_penalty}}}}},
               {"total_slots", options_.scheduler.active_max},
               {"model_path", folder_name(model_->directory)},
               {"build_info", formatted("moeflux {}", MOEFLUX_VERSION)}};
  if (format_.ok()) {
    json["chat_template"] = (*format_)->template_text();
    json["chat_template_caps"] = capabilities_json((*format_)->chat_template().capabilities(true));
    json["output_format"] = (*format_)->output().name;
  }
  call.answer(json);
}

void Service::slots(Call& call) { call.answer(slots_json(scheduler_->slots())); }

std::string Service::metrics() const {
  return metrics_text(scheduler_->counters(), model_->counters());
}

void Service::show_metrics(Call& call) {
  call.response->send(200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                      metrics());
}

void Service::openapi(Call& call) {
  call.response->send(200, {{"Content-Type", "application/json"}}, std::string(openapi_text()));
}

void Service::not_offered(Call& call) {
  call.fail({.status = 404,
             .type = "not_found_error",
             .message = formatted("{} is not offered: moeflux continues texts, it makes no "
                                  "embeddings, scores, sounds or images",
                                  call.request.path)});
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
