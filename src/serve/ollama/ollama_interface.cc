// Ollama's interface, as of the one model that there is.
#include <chrono>
#include <utility>

#include "base/format.h"
#include "serve/call.h"
#include "serve/ollama/answer.h"
#include "serve/ollama/request.h"
#include "serve/one_answer.h"
#include "serve/openai/completions.h"
#include "serve/utc_time.h"

namespace moeflux::serve {
namespace {

/// The version of Ollama whose interface this is: clients look whether it is new enough.
constexpr std::string_view kInterfaceVersion = "0.12.0";

std::string now_text() { return utc_text(std::chrono::system_clock::now()); }

/// Hears of a text that has no format, as of an answer that is all content.
class PlainText : public CompletionListener {
 public:
  explicit PlainText(std::shared_ptr<AnswerListener> listener) : listener_(std::move(listener)) {}

  bool on_delta(const CompletionDelta& delta) override {
    return listener_->on_delta({.kind = OutputKind::kContent, .text = delta.text});
  }
  void on_done(const CompletionPart& part) override {
    AnswerPart answer;
    answer.content = part.text;
    answer.statistics = part.statistics;
    listener_->on_done(answer);
  }
  void on_failed(const Error& error) override { listener_->on_failed(error); }

 private:
  const std::shared_ptr<AnswerListener> listener_;
};

void banner(Call& call) {
  call.target.response->send(200, {{"Content-Type", "text/plain; charset=utf-8"}},
                             "moeflux is running, Ollama is spoken\n");
}

void version(Call& call) { call.answer({{"version", kInterfaceVersion}}); }

Json model_json(Context& service) {
  OpenModel& model = service.model();
  const MemoryPlan& plan = model.engine->memory_plan();
  const std::string& family = model.engine->spec().model_type;
  const auto started =
      std::chrono::system_clock::time_point(std::chrono::seconds(service.started()));
  return {{"name", service.options().model_name},
          {"model", service.options().model_name},
          {"modified_at", utc_text(started)},
          {"size", plan.dense_bytes + plan.experts_bytes},
          {"digest", formatted("{:016x}", model.engine->fingerprint())},
          {"details",
           {{"parent_model", ""},
            {"format", "moeflux"},
            {"family", family},
            {"families", Json::array({family})},
            {"parameter_size", ""},
            {"quantization_level", ""}}}};
}

void tags(Call& call) { call.answer({{"models", Json::array({model_json(call.service)})}}); }

void running(Call& call) {
  Json model = model_json(call.service);
  // It stays for as long as the server does.
  model["expires_at"] = utc_text(std::chrono::system_clock::now() + std::chrono::hours(24 * 365));
  model["size_vram"] = call.service.model().engine->memory_plan().on_device.total_bytes();
  model["context_length"] = call.service.context_length();
  call.answer({{"models", Json::array({std::move(model)})}});
}

void show(Call& call) {
  Fields fields(call.body);
  const std::string name = fields.text(fields.has("model") ? "model" : "name").value_or("");
  if (fields.problem()) return call.fail(*fields.problem());
  if (!call.service.knows_model(name)) return call.fail(call.service.unknown_model(name));
  const ModelSpec& spec = call.service.model().engine->spec();
  const std::string& family = spec.model_type;
  Json capabilities = Json::array({"completion"});
  std::string chat_template;
  if (call.service.format().ok()) {
    const ChatFormat& format = **call.service.format();
    if (format.chat_template().capabilities(true).tools) capabilities.push_back("tools");
    if (format.chat_template().capabilities(false).reasoning) capabilities.push_back("thinking");
    chat_template = format.template_text();
  }
  const Json model = model_json(call.service);
  call.answer({{"modelfile", ""},
               {"parameters", ""},
               {"template", chat_template},
               {"modified_at", model["modified_at"]},
               {"details", model["details"]},
               {"model_info",
                {{"general.architecture", family},
                 {family + ".context_length", call.service.context_length()},
                 {family + ".embedding_length", spec.hidden_size},
                 {family + ".block_count", spec.num_layers()},
                 {family + ".vocab_size", spec.vocab_size}}},
               {"capabilities", std::move(capabilities)}});
}

void generate_raw(Call& call, const OllamaRequest& request,
                  std::unique_ptr<AnswerEncoder> encoder) {
  if (!call.service.may_fit(call, request.raw_prompt)) return;
  auto constraint = call.service.compile(call, request.chat.constraint);
  if (!constraint) return;
  const GenerationFields& generation = request.chat.generation;
  Result<std::vector<TokenId>> prompt = call.service.tokenizer().encode(
      request.raw_prompt, {.add_special_tokens = true, .match_added_tokens = true});
  if (!prompt.ok()) return call.fail(api_error(prompt.error()));
  const auto answer = std::make_shared<OneAnswer>(call.service.scheduler(), call.target,
                                                  generation.stream, std::move(encoder), nullptr);
  const CompletionRequest completion{.generation = generation};
  auto text = call.service.prompted_text(call, generation, *prompt, 0);
  if (!text) return;
  text->constraint = *std::move(constraint);
  std::vector<ChoiceJob> jobs;
  jobs.emplace_back(
      std::move(*text),
      std::make_shared<Completion>(call.service.tokenizer(), completion, std::move(prompt).value(),
                                   std::make_shared<PlainText>(answer->listener())));
  answer->start(std::move(jobs));
}

void answer(Call& call, DecodedOllama decoded, bool is_chat) {
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  auto& request = std::get<OllamaRequest>(decoded);
  auto encoder = std::make_unique<OllamaEncoder>(OllamaAnswerOptions{
      .model = call.service.options().model_name, .is_chat = is_chat, .clock = now_text});
  if (request.is_empty) return call.answer(encoder->loaded());
  if (request.is_raw) return generate_raw(call, request, std::move(encoder));
  const auto chat = call.service.read_chat(call, std::move(request.chat));
  if (chat) call.service.answer_once(call, *chat, std::move(encoder));
}

void chat(Call& call) {
  answer(
      call,
      decode_ollama_chat(call.body, call.service.options().defaults, call.service.context_length()),
      true);
}

void generate(Call& call) {
  answer(call,
         decode_ollama_generate(call.body, call.service.options().defaults,
                                call.service.context_length()),
         false);
}

void manages_nothing(Call& call) {
  call.fail({.status = 501,
             .message = formatted("{} is not offered: this server has one model, which it is "
                                  "started with, and continues texts",
                                  call.request.path)});
}

constexpr Route kRoutes[] = {
    {"GET", "/", &banner, RouteKind::kAtOnce},
    {"GET", "/api/version", &version, RouteKind::kAtOnce},
    {"GET", "/api/tags", &tags, RouteKind::kAtOnce},
    {"GET", "/api/ps", &running},
    {"POST", "/api/show", &show},
    {"POST", "/api/chat", &chat},
    {"POST", "/api/generate", &generate},
    {"POST", "/api/pull", &manages_nothing, RouteKind::kAnyModel},
    {"POST", "/api/push", &manages_nothing, RouteKind::kAnyModel},
    {"POST", "/api/create", &manages_nothing, RouteKind::kAnyModel},
    {"POST", "/api/copy", &manages_nothing, RouteKind::kAnyModel},
    {"DELETE", "/api/delete", &manages_nothing},
    {"POST", "/api/embed", &manages_nothing, RouteKind::kAnyModel},
    {"POST", "/api/embeddings", &manages_nothing, RouteKind::kAnyModel},
};

}  // namespace

extern const Interface ollama_interface;
const Interface ollama_interface = {
    .home = "/api",
    .routes = kRoutes,
    .error_text = &ollama_error_text,
    // Between lines of JSON there are no comments, and lines have no numbers.
    .stream = {.content_type = "application/x-ndjson", .keep_alive = "", .is_events = false},
    // Ollama reads whatever comes, and its clients count on that: LiteLLM sends no type, curl that
    // of forms, fetch() that of text. A page's requests have an Origin, which is looked at.
    .takes_any_type = true,
};

}  // namespace moeflux::serve
