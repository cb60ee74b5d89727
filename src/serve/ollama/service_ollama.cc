// Ollama's requests.
#include <chrono>
#include <utility>

#include "base/format.h"
#include "serve/answer_grammar.h"
#include "serve/ollama/answer.h"
#include "serve/one_answer.h"
#include "serve/openai/completions.h"
#include "serve/service_call.h"
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

}  // namespace

void Service::ollama_banner(Call& call) {
  call.target.response->send(200, {{"Content-Type", "text/plain; charset=utf-8"}},
                             "moeflux is running, Ollama is spoken\n");
}

void Service::ollama_version(Call& call) { call.answer({{"version", kInterfaceVersion}}); }

Json Service::ollama_model_json() const {
  const OpenModel& model = *model_;
  const MemoryPlan& plan = model.engine->memory_plan();
  const std::string& family = model.engine->spec().model_type;
  const auto started = std::chrono::system_clock::time_point(std::chrono::seconds(started_));
  return {{"name", options_.model_name},
          {"model", options_.model_name},
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

void Service::ollama_tags(Call& call) {
  call.answer({{"models", Json::array({ollama_model_json()})}});
}

void Service::ollama_running(Call& call) {
  Json model = ollama_model_json();
  // It stays for as long as the server does.
  model["expires_at"] = utc_text(std::chrono::system_clock::now() + std::chrono::hours(24 * 365));
  model["size_vram"] = model_->engine->memory_plan().on_device.total_bytes();
  model["context_length"] = model_->engine->context_length();
  call.answer({{"models", Json::array({std::move(model)})}});
}

void Service::ollama_show(Call& call) {
  Fields fields(call.body);
  const std::string name = fields.text(fields.has("model") ? "model" : "name").value_or("");
  if (fields.problem()) return call.fail(*fields.problem());
  if (!knows(name)) return call.fail(unknown_model(name));
  const ModelSpec& spec = model_->engine->spec();
  const std::string& family = spec.model_type;
  Json capabilities = Json::array({"completion"});
  std::string chat_template;
  if (format_.ok()) {
    const ChatFormat& format = **format_;
    if (format.chat_template().capabilities(true).tools) capabilities.push_back("tools");
    if (format.chat_template().capabilities(false).reasoning) capabilities.push_back("thinking");
    chat_template = format.template_text();
  }
  const Json model = ollama_model_json();
  call.answer({{"modelfile", ""},
               {"parameters", ""},
               {"template", chat_template},
               {"modified_at", model["modified_at"]},
               {"details", model["details"]},
               {"model_info",
                {{"general.architecture", family},
                 {family + ".context_length", model_->engine->context_length()},
                 {family + ".embedding_length", spec.hidden_size},
                 {family + ".block_count", spec.num_layers()},
                 {family + ".vocab_size", spec.vocab_size}}},
               {"capabilities", std::move(capabilities)}});
}

void Service::generate_raw(Call& call, const OllamaRequest& request,
                           std::unique_ptr<AnswerEncoder> encoder) {
  if (!may_fit(call, request.raw_prompt)) return;
  if (request.chat.constraint.kind != ConstraintKind::kNone && !call.may_take_long) {
    call.is_put_off = true;
    return;
  }
  const AnswerConstraint constraint = compile_text(*model_, request.chat.constraint);
  if (const auto* error = std::get_if<ApiError>(&constraint)) return call.fail(*error);
  const GenerationFields& generation = request.chat.generation;
  Result<std::vector<TokenId>> prompt = tokenizer().encode(
      request.raw_prompt, {.add_special_tokens = true, .match_added_tokens = true});
  if (!prompt.ok()) return call.fail(api_error(prompt.error()));
  const auto answer = std::make_shared<OneAnswer>(*scheduler_, call.target, generation.stream,
                                                  std::move(encoder), nullptr);
  const CompletionRequest completion{.generation = generation};
  auto text = prompted_text(call, generation, *prompt, 0);
  if (!text) return;
  text->constraint = std::get<std::shared_ptr<const Constraint>>(constraint);
  std::vector<ChoiceJob> jobs;
  jobs.emplace_back(std::move(*text),
                    std::make_shared<Completion>(tokenizer(), completion, std::move(prompt).value(),
                                                 std::make_shared<PlainText>(answer->listener())));
  answer->start(std::move(jobs));
}

void Service::answer_ollama(Call& call, DecodedOllama decoded, bool is_chat) {
  if (const auto* error = std::get_if<ApiError>(&decoded)) return call.fail(*error);
  auto& request = std::get<OllamaRequest>(decoded);
  auto encoder = std::make_unique<OllamaEncoder>(
      OllamaAnswerOptions{.model = options_.model_name, .is_chat = is_chat, .clock = now_text});
  if (request.is_empty || request.is_raw) {
    const std::string name = Fields(call.body).text("model").value_or("");
    if (!knows(name)) return call.fail(unknown_model(name));
    if (request.is_empty) return call.answer(encoder->loaded());
    return generate_raw(call, request, std::move(encoder));
  }
  const auto chat = read_chat(call, std::move(request.chat));
  if (chat) answer_once(call, *chat, std::move(encoder));
}

void Service::ollama_chat(Call& call) {
  answer_ollama(call,
                decode_ollama_chat(call.body, options_.defaults, model_->engine->context_length()),
                true);
}

void Service::ollama_generate(Call& call) {
  answer_ollama(
      call, decode_ollama_generate(call.body, options_.defaults, model_->engine->context_length()),
      false);
}

void Service::ollama_manages_nothing(Call& call) {
  call.fail({.status = 501,
             .message = formatted("{} is not offered: this server has one model, which it is "
                                  "started with, and continues texts",
                                  call.request.path)});
}

}  // namespace moeflux::serve
