// OpenAI's chat completions, completions and embeddings, the list of models, and reranking.
#include <chrono>
#include <utility>

#include "plan/model_sizes.h"
#include "serve/call.h"
#include "serve/native/conversations.h"
#include "serve/native/handlers.h"
#include "serve/openai/chat.h"
#include "serve/openai/chat_answer.h"
#include "serve/openai/completions.h"
#include "serve/openai/handlers.h"
#include "serve/openai/text_answer.h"
#include "serve/wire/utc_time.h"

namespace moeflux::serve {
namespace {

// The request's body stays as it is: one that is put off is read again.
DecodedChat decode_chat(const Call& call, const SavedConversation* saved) {
  const RequestDefaults& defaults = call.service().options().defaults;
  if (saved == nullptr) return decode_chat_request(call.body, defaults);
  Json body = call.body;
  body["messages"] = saved->messages();
  return decode_chat_request(body, defaults);
}

void chat_completions(Call& call) {
  Context& service = call.service();
  const auto saved = go_on(call);
  if (!saved) return;
  const auto chat = service.read_chat(call, decode_chat(call, saved->get()));
  if (!chat) return;
  ChatAnswerOptions options{.identity = service.identity("chatcmpl-", chat->request.generation),
                            .generation = chat->request.generation,
                            .with_logprobs = chat->request.top_logprobs >= 0};
  if (chat->request.tells_prompt) options.prompt = chat->prompt.text;
  if (*saved) {
    (*saved)->set_continues(chat->request.conversation.continue_final_message);
    options.on_end = [one = *saved](const AnswerPart& answer) { return one->add(answer); };
  }
  service.answer(
      call, *chat,
      std::make_unique<ChatEncoder>(std::move(options), TokenSpelling(service.tokenizer())),
      *saved ? (*saved)->answer() : nullptr);
}

// Without the version these are llama.cpp's words, as there.
void completions(Call& call) {
  if (!has_version(call.request.path)) return complete_natively(call);
  Context& service = call.service();
  const Json* prompt = Fields(call.body).find("prompt");
  if (prompt != nullptr && !service.may_fit(call, *prompt)) return;
  const auto decoded =
      decode_completion_request(call.body, service.options().defaults.sampler, service.tokenizer());
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  const auto& request = std::get<RawRequest>(decoded);
  const GenerationFields& generation = request.generation;
  service.complete(call, request,
                   std::make_unique<TextEncoder>(
                       TextAnswerOptions{.identity = service.identity("cmpl-", generation),
                                         .generation = generation,
                                         .with_logprobs = request.logprobs >= 0,
                                         .prompts = request.prompts.size(),
                                         .choices = request.prompts.size() *
                                                    static_cast<size_t>(generation.choices)},
                       TokenSpelling(service.tokenizer())));
}

void count_input_tokens(Call& call) {
  const auto saved = go_on(call);
  if (!saved) return;
  const auto chat = call.service().read_chat(call, decode_chat(call, saved->get()));
  if (!chat) return;
  call.answer({{"object", "response.input_tokens"}, {"input_tokens", chat->prompt.tokens.size()}});
}

// As llama.cpp's router tells it: one that failed is unloaded again.
Json state_json(const ModelStatus& model) {
  switch (model.state) {
    case ModelState::kLoaded:
      return {{"value", "loaded"}};
    case ModelState::kLoading:
      return {{"value", "loading"}, {"progress", model.progress}};
    case ModelState::kUnloaded:
      if (model.error.empty()) return {{"value", "unloaded"}};
      return {{"value", "unloaded"}, {"failed", true}, {"error", model.error}};
  }
  __builtin_unreachable();
}

// As llama.cpp numbers kinds of vocabularies: 1 is SentencePiece's, 2 of bytes.
Json meta_json(Context& service) {
  const Engine& engine = *service.model().engine;
  const ModelSizes sizes = measure_model(engine.loaded());
  const auto& tokenizer = service.model().text.tokenizer;
  return {{"vocab_type", !tokenizer.ok()              ? 0
                         : tokenizer->is_byte_level() ? 2
                                                      : 1},
          {"n_vocab", engine.spec().vocab_size},
          {"n_ctx", service.context_length()},
          {"n_ctx_train", engine.spec().max_position_embeddings},
          {"n_embd", engine.spec().hidden_size},
          {"n_params", sizes.parameters},
          {"size", sizes.total_bytes()}};
}

// In one object what OpenAI's and Anthropic's clients look for, and those of llama.cpp's router.
Json model_json(ServiceState& state, const ModelStatus& model) {
  const auto started = std::chrono::system_clock::time_point(std::chrono::seconds(state.started()));
  Json json = {{"id", model.listed.name},
               {"object", "model"},
               {"created", state.started()},
               {"owned_by", "moeflux"},
               {"type", "model"},
               {"display_name", model.listed.name},
               {"created_at", utc_text(started)},
               {"status", state_json(model)}};
  if (!model.loaded) return json;
  json["meta"] = meta_json(*model.loaded);
  return json;
}

void models(Call& call) {
  Json data = Json::array();
  for (const ModelStatus& model : call.models.list()) {
    data.push_back(model_json(call.state, model));
  }
  const Json first = data.empty() ? Json() : data.front()["id"];
  const Json last = data.empty() ? Json() : data.back()["id"];
  // Codex asks for `models`.
  call.answer({{"object", "list"},
               {"data", std::move(data)},
               {"has_more", false},
               {"first_id", first},
               {"last_id", last},
               {"models", Json::array()}});
}

void model(Call& call) {
  const auto model = call.models.find(call.id);
  if (!model) return call.fail(call.models.unknown(call.id));
  call.answer(model_json(call.state, *model));
}

void load_or_unload(Call& call, std::optional<ApiError> (Models::*what)(const std::string&)) {
  Fields fields(call.body);
  const auto name = fields.text("model");
  if (!name) fields.fail(bad_field("model", "model is absent, expected the name of a model"));
  if (fields.problem()) return call.fail(*fields.problem());
  if (const auto error = (call.models.*what)(*name)) return call.fail(*error);
  call.answer({{"success", true}});
}

void load_model(Call& call) { load_or_unload(call, &Models::load); }
void unload_model(Call& call) { load_or_unload(call, &Models::unload); }

// OpenAI's clients know chunks without choices from the usage at the end.
Json empty_chunk(const char* object, const std::string& model) {
  return {{"id", ""},
          {"object", object},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count()},
          {"model", model},
          {"choices", Json::array()}};
}
Json empty_chat_chunk(const std::string& model) {
  return empty_chunk("chat.completion.chunk", model);
}
Json empty_text_chunk(const std::string& model) { return empty_chunk("text_completion", model); }

constexpr Route kOpenAiRoutes[] = {
    {"POST", "/chat/completions", &chat_completions, RouteKind::kUsual, &empty_chat_chunk},
    {"POST", "/chat/completions/input_tokens", &count_input_tokens},
    {"POST", "/completions", &completions, RouteKind::kUsual, &empty_text_chunk},
    {"GET", "/models", &models, RouteKind::kAtOnce},
    {"GET", "/models/{name}", &model, RouteKind::kAtOnce},
    {"POST", "/models/load", &load_model, RouteKind::kNoModel},
    {"POST", "/models/unload", &unload_model, RouteKind::kNoModel},
    {"POST", "/embeddings", &embeddings, RouteKind::kTexts},
    {"POST", "/embedding", &embeddings_natively, RouteKind::kTexts},
    {"POST", "/rerank", &rerank, RouteKind::kTexts},
    {"POST", "/reranking", &rerank, RouteKind::kTexts},
    {"POST", "/v2/rerank", &rerank, RouteKind::kTexts},
    {"POST", "/audio/transcriptions", &not_offered, RouteKind::kNoModel},
    {"POST", "/audio/speech", &not_offered, RouteKind::kNoModel},
    {"POST", "/images/generations", &not_offered, RouteKind::kNoModel},
};

}  // namespace

extern const Interface openai_interface = {
    .home = "", .routes = kOpenAiRoutes, .error_text = &error_text};

}  // namespace moeflux::serve
