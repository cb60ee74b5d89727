#include "serve/context.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "serve/answer/answer_grammar.h"
#include "serve/answer/chat_text.h"
#include "serve/call.h"
#include "serve/service_limits.h"

namespace moeflux::serve {
namespace {

// The client's name of the prompt.
const char* prompt_field(const Json& body) {
  for (const char* name : {"messages", "input", "prompt"}) {
    if (body.is_object() && body.contains(name)) return name;
  }
  return "messages";
}

ApiError too_long(const Json& body, size_t prompt, int64_t context) {
  return {.type = std::string(kTooLong),
          .code = "context_length_exceeded",
          .message = formatted("the prompt has {} tokens, which exceeds the available context size "
                               "of {} with at least one to follow (see --ctx-size)",
                               prompt, context),
          .param = prompt_field(body),
          .details = {{"n_prompt_tokens", prompt}, {"n_ctx", context}}};
}

// Each choice has a copy of the prompt: many choices are for short ones.
std::optional<ApiError> too_many_copies(const GenerationFields& generation, size_t prompt,
                                        int64_t context) {
  constexpr int64_t kChoicesUsual = 8;
  const int64_t most = kChoicesUsual * context;
  if (generation.choices <= kChoicesUsual) return std::nullopt;
  if (generation.choices * static_cast<int64_t>(prompt) <= most) return std::nullopt;
  return bad_field("n", formatted("n is {} with a prompt of {} tokens, expected at most {} tokens "
                                  "in the prompts of all choices",
                                  generation.choices, prompt, most));
}

// Why the conversation is no prompt. That its end cannot be gone on with is said of that message,
// unless the client asked for it by the field's name.
ApiError no_prompt(const Json& body, const Error& error) {
  ApiError told = api_error(error);
  constexpr std::string_view kField = "continue_final_message";
  const size_t found = told.message.find(kField);
  if (found == std::string::npos || !body.is_object()) return told;
  const std::string list = prompt_field(body);
  const auto given = body.find(list);
  const bool is_list = given != body.end() && given->is_array() && !given->empty();
  told.param = body.contains(kField) ? std::string(kField)
               : is_list             ? formatted("{}[{}]", list, given->size() - 1)
                                     : list;
  told.message.replace(found, kField.size(), told.param);
  return told;
}

// Names the field as the client does, in a request or in Ollama's options.
std::optional<ApiError> unknown_token(const Json& body, const GenerationFields& generation,
                                      const OpenModel& model) {
  const auto check = [&](const char* name, const std::string& index, TokenId token,
                         int64_t vocab_size) -> std::optional<ApiError> {
    if (token < vocab_size) return std::nullopt;
    const bool is_option = !body.is_object() || !body.contains(name);
    const std::string param = formatted("{}{}{}", is_option ? "options." : "", name, index);
    return bad_field(param, formatted("{}: token {}, expected one of the vocabulary's {} tokens",
                                      param, token, vocab_size));
  };
  std::optional<ApiError> error;
  for (size_t i = 0; !error && i < generation.allowed_tokens.size(); ++i) {
    error = check("allowed_token_ids", formatted("[{}]", i), generation.allowed_tokens[i],
                  model.text.tokenizer->vocab_size());
  }
  for (const LogitBias& bias : generation.sampler.logit_bias) {
    if (!error) error = check("logit_bias", "", bias.token, model.engine->spec().vocab_size);
  }
  return error;
}

TextRequest text_request(const GenerationFields& generation, int64_t choice,
                         const Tokenizer& tokenizer) {
  SamplerOptions sampler = sampler_of_choice(generation.sampler, choice);
  sampler.logit_bias = logit_biases(generation, tokenizer);
  return {.sampler = std::move(sampler),
          .stop_tokens = generation.stop_tokens,
          .ignore_model_stop_tokens = generation.ignore_stop_tokens,
          .tokens_min = generation.tokens_min,
          .allowed_tokens = generation.allowed_tokens,
          .reuse = generation.reuse_states};
}

/// The common part of all names of a model: without a folder, Ollama's tag, a file's ending and
/// case.
std::optional<GivenTemplate> given_template(const ServiceOptions& options) {
  if (!options.template_text) return std::nullopt;
  GivenTemplate given{.text = *options.template_text};
  if (!options.template_file.empty()) given.place = options.template_file;
  return given;
}

}  // namespace

Context::Context(std::shared_ptr<OpenModel> model, ServiceOptions options, ServiceState& state)
    : state_(state),
      model_(std::move(model)),
      options_(std::move(options)),
      format_(make_error(ErrorCode::kNotFound, "no chat template was looked for")),
      reranker_(make_error(ErrorCode::kNotFound, "no head of scores was looked for")) {}

Result<std::unique_ptr<Context>> Context::create(std::shared_ptr<OpenModel> model,
                                                 ServiceOptions options, ServiceState& state) {
  if (!model->text.tokenizer.ok()) return model->text.tokenizer.error();
  if (options.model_name.empty()) options.model_name = folder_name(model->directory);
  std::unique_ptr<Context> context(new Context(std::move(model), std::move(options), state));
  OpenModel& opened = *context->model_;
  context->fingerprint_ =
      formatted("moeflux-{}-{:016x}", MOEFLUX_VERSION, opened.engine->fingerprint());
  context->prompt_bytes_max_ = text_bytes_max(opened);
  MF_ASSIGN_OR_RETURN(const auto source, open_model_source(opened.directory));
  const auto given = given_template(context->options_);
  context->format_ = ChatFormat::load(*source, *opened.text.tokenizer, given);
  if (given && !context->format_.ok() &&
      context->format_.error().code() == ErrorCode::kInvalidArgument) {
    return context->format_.error();
  }
  context->reranker_ = Reranker::create(opened, context->format_.ok() ? *context->format_ : nullptr,
                                        context->options_.reranks);
  if (context->options_.reranks && !context->reranker_.ok()) return context->reranker_.error();
  MF_ASSIGN_OR_RETURN(context->scheduler_,
                      Scheduler::start(context->model_, context->options_.scheduler));
  return context;
}

void Context::note_dropped(const ChatRequest& request) {
  state_.note_ignored(request.generation.ignored);
  for (const std::string& type : request.dropped_tools) {
    state_.note(formatted("tools of type {} are left out: nobody here can run them",
                          json_excerpt(Json(type))),
                /*once=*/true);
  }
}

bool Context::may_fit(const Call& call, const Json& texts) const {
  ApiError error{.type = std::string(kTooLong),
                 .code = "context_length_exceeded",
                 .message = {},
                 .param = prompt_field(call.body)};
  const size_t bytes = text_bytes(texts);
  if (bytes <= prompt_bytes_max_) return true;
  error.message = formatted(
      "the prompt has {} bytes, the context's {} tokens spell at most {} (see --ctx-size)", bytes,
      context_length(), prompt_bytes_max_);
  call.fail(error);
  return false;
}

std::optional<Chat> Context::read_chat(Call& call, DecodedChat decoded) {
  const auto fail = [&](const ApiError& error) {
    call.fail(error);
    return std::nullopt;
  };
  if (!format_.ok()) return fail(api_error(format_.error()));
  if (const auto* error = std::get_if<ApiError>(&decoded)) return fail(*error);
  auto& request = std::get<ChatRequest>(decoded);
  note_dropped(request);
  if (request.generation.return_routes && request.generation.choices == 1) {
    request.generation.routes_id = make_id("routes-");
  }
  if (!may_fit(call, request.conversation.messages)) return std::nullopt;
  if (needs_compile(request) && !call.may_take_long) {
    call.is_put_off = true;
    return std::nullopt;
  }
  Result<ChatPrompt> prompt = (*format_)->prompt(request.conversation, local_time_now());
  if (!prompt.ok()) return fail(no_prompt(call.body, prompt.error()));
  AnswerConstraint constraint = compile_answer(*model_, **format_, prompt->tail, request,
                                               [&] { return call.target.response->is_closed(); });
  if (const auto* error = std::get_if<ApiError>(&constraint)) return fail(*error);
  return Chat{.request = std::move(request),
              .prompt = std::move(prompt).value(),
              .constraint = std::get<std::shared_ptr<const Constraint>>(std::move(constraint))};
}

std::optional<TextRequest> Context::prompted_text(const Call& call,
                                                  const GenerationFields& generation,
                                                  const std::vector<TokenId>& prompt,
                                                  int64_t choice) const {
  // The whole context may be scored, if nothing has to follow.
  const int64_t most = context_length() - (generation.tokens_max == 0 ? 0 : 1);
  if (static_cast<int64_t>(prompt.size()) > most) {
    call.fail(too_long(call.body, prompt.size(), context_length()));
    return std::nullopt;
  }
  if (const auto error = too_many_copies(generation, prompt.size(), context_length())) {
    call.fail(*error);
    return std::nullopt;
  }
  if (const auto error = unknown_token(call.body, generation, *model_)) {
    call.fail(*error);
    return std::nullopt;
  }
  TextRequest text = text_request(generation, choice, tokenizer());
  text.prompt = prompt;
  text.client = call.request.shares_with;
  // Negative, as the client has it, for no limit.
  const int64_t rest = context_length() - static_cast<int64_t>(prompt.size());
  text.tokens_max = std::min(generation.tokens_max, rest);
  return text;
}

void Context::answer(const Call& call, const Chat& chat, std::unique_ptr<AnswerEncoder> encoder,
                     const std::shared_ptr<KeptAnswer>& kept) {
  const ChatRequest& request = chat.request;
  const auto choices =
      std::make_shared<Choices>(*scheduler_, call.target, std::move(encoder),
                                ChoicesOptions{.stream = request.generation.stream,
                                               .tells_on = &state_.tells(),
                                               .ends_on = kept ? &state_.jobs() : nullptr});
  if (kept) stop_when_deleted(*kept, choices);
  std::vector<ChoiceJob> jobs;
  for (int64_t i = 0; i < request.generation.choices; ++i) {
    auto text = prompted_text(call, request.generation, chat.prompt.tokens, i);
    if (!text) return;
    text->top_logprobs = request.top_logprobs;
    text->constraint = chat.constraint;
    if (!request.generation.routes_id.empty()) {
      text->routes =
          state_.routes().add(owned_text(call.request.owner, request.generation.routes_id));
    }
    AnswerOptions options{.prompt_tail = chat.prompt.tail,
                          .tools = request.tools,
                          .stop_strings = request.generation.stop,
                          .includes_stop = request.generation.includes_stop,
                          .tokens_min = request.generation.tokens_min,
                          .reasoning_tokens_max = request.reasoning_tokens_max,
                          .one_call = request.calls_once(),
                          .id_seed = text->sampler.seed};
    jobs.emplace_back(*std::move(text), std::make_shared<ChatText>(*format_, std::move(options),
                                                                   choices, jobs.size()));
  }
  choices->start(std::move(jobs));
}

void Context::complete(Call& call, const RawRequest& request,
                       std::unique_ptr<AnswerEncoder> encoder) {
  if (request.constraint.kind != ConstraintKind::kNone && !call.may_take_long) {
    call.is_put_off = true;
    return;
  }
  const AnswerConstraint constraint = compile_text(*model_, request.constraint);
  if (const auto* error = std::get_if<ApiError>(&constraint)) return call.fail(*error);
  const GenerationFields& generation = request.generation;
  state_.note_ignored(generation.ignored);
  const auto choices = std::make_shared<Choices>(
      *scheduler_, call.target, std::move(encoder),
      ChoicesOptions{.stream = generation.stream, .tells_on = &state_.tells()});
  std::vector<ChoiceJob> jobs;
  for (const auto& prompt : request.prompts) {
    for (int64_t i = 0; i < generation.choices; ++i) {
      auto text = prompted_text(call, generation, prompt, i);
      if (!text) return;
      text->top_logprobs = request.logprobs;
      text->constraint = std::get<std::shared_ptr<const Constraint>>(constraint);
      text->sampled_logprobs = request.sampled_scores;
      text->prompt_logprobs = request.echo && request.logprobs >= 0;
      jobs.emplace_back(*std::move(text), std::make_shared<RawText>(tokenizer(), request, prompt,
                                                                    choices, jobs.size()));
    }
  }
  choices->start(std::move(jobs));
}

Status Context::in_turn(const Call& call, const std::function<Status()>& step) const {
  if (call.target.response->is_closed()) {
    return make_error(ErrorCode::kCancelled, "the client has left");
  }
  const Turn turn(model_, {}, -1);
  return step();
}

uint64_t Context::shrink(uint64_t bytes) {
  const Turn turn(model_, {}, -1);
  model_->engine->experts().release_memory(bytes);
  model_->publish(0, 0);
  return model_->engine->host_bytes();
}

AnswerIdentity Context::identity(std::string_view prefix,
                                 const GenerationFields& generation) const {
  return {.id = make_id(prefix),
          .created = unix_seconds(),
          .model = options_.model_name,
          .fingerprint = fingerprint_,
          .seed = generation.sampler.seed,
          .ignored = generation.ignored,
          .routes = generation.routes_id};
}

}  // namespace moeflux::serve
