// What a server of one model does with each request, whoever brings it: an HTTP server, a C program
// or a Python server.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "chat/scheduler.h"
#include "serve/answer_encoder.h"
#include "serve/choices.h"
#include "serve/exchange.h"
#include "serve/metrics.h"
#include "serve/ollama_request.h"
#include "serve/openai_chat.h"
#include "serve/response_store.h"
#include "serve/resumable_streams.h"

namespace moeflux::serve {

struct ServiceOptions {
  std::string model_name;                    // what clients call it; empty: the folder's name
  std::vector<std::string> aliases = {};     // further names; "*" is any
  std::optional<std::string> template_text;  // in place of the model's own
  RequestDefaults defaults;                  // what requests say nothing of
  SchedulerOptions scheduler;
  /// Leaves out of Anthropic's prompts what is new in every request; see prompt_nonces.h.
  bool steady_prompts = true;
  size_t stored_response_bytes = size_t{64} << 20;  // of OpenAI's responses that are kept
  ResumableLimits streams = {};
  /// Told, once for each, of tools that requests have and nobody here can run.
  std::function<void(const std::string& line)> on_note = {};
};

class Service {
 public:
  /// A model without a chat template answers
  /// completions alone, and says why. Fails without a tokenizer.
  static Result<std::unique_ptr<Service>> start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options);
  /// Cancels what runs.
  ~Service();

  /// Answers now or later. Any thread; JSON, template and tokens are made in the call.
  void handle(const Request& request, std::shared_ptr<Response> response);
  /// Ends the streams of those who watch and would never leave: call it before a server waits for
  /// its connections.
  void end_watching();
  /// Refuses further texts and waits for those that have begun.
  void drain();

  const std::string& model_name() const { return options_.model_name; }
  SchedulerCounters counters() const { return scheduler_->counters(); }
  /// For Prometheus.
  std::string metrics() const;
  /// How often each path was asked for, those too that nobody asked for.
  std::vector<AskedCount> asked() const;

 private:
  struct Call;
  struct Chat;
  using Handle = void (Service::*)(Call& call);
  struct Route;
  static const std::vector<Route>& routes();

  Service(std::shared_ptr<OpenModel> model, ServiceOptions options);

  void chat_completions(Call& call);
  void completions(Call& call);
  void count_input_tokens(Call& call);
  // Anthropic's: service_anthropic.cc
  void messages(Call& call);
  void count_message_tokens(Call& call);
  // OpenAI's responses: service_responses.cc
  void responses(Call& call);
  void count_response_tokens(Call& call);
  void stored_response(Call& call);
  void stored_input(Call& call);
  void delete_response(Call& call);
  // Ollama's: service_ollama.cc
  void ollama_banner(Call& call);
  void ollama_version(Call& call);
  void ollama_tags(Call& call);
  void ollama_running(Call& call);
  void ollama_show(Call& call);
  void ollama_chat(Call& call);
  void ollama_generate(Call& call);
  void ollama_manages_nothing(Call& call);
  // Our own: service_native.cc
  void resume_stream(Call& call);
  void delete_stream(Call& call);
  void list_streams(Call& call);
  void telemetry(Call& call);
  void plan(Call& call);
  void conversations(Call& call);
  void tokenize(Call& call);
  void detokenize(Call& call);
  void apply_template(Call& call);
  void models(Call& call);
  void model(Call& call);
  void health(Call& call);
  void props(Call& call);
  void slots(Call& call);
  void show_metrics(Call& call);
  void openapi(Call& call);
  void not_offered(Call& call);
  ApiError unknown_model(const std::string& name) const;

  /// False where the body is no JSON, which has been answered.
  bool read_body(Call& call);
  /// A chat request with its prompt. Nothing where it cannot be; what is wrong has been answered.
  std::optional<Chat> read_chat(Call& call, DecodedChat decoded);
  /// Nothing where the context is too short for the prompt, which has been answered.
  std::optional<TextRequest> prompted_text(const Call& call, const GenerationFields& generation,
                                           const std::vector<TokenId>& prompt,
                                           int64_t choice) const;
  /// The texts to ask for, with who hears of each choice. Nothing where the context is too short,
  /// which has been answered.
  std::optional<std::vector<ChoiceJob>> chat_jobs(
      const Call& call, const Chat& chat,
      const std::function<std::shared_ptr<AnswerListener>(size_t choice)>& listener) const;
  /// Asks for an answer of one choice.
  void answer_once(const Call& call, const Chat& chat, std::unique_ptr<AnswerEncoder> encoder);
  DecodedChat decode_messages(const Call& call, bool counts_only) const;
  Json model_json() const;
  Json ollama_model_json() const;
  void answer_ollama(Call& call, DecodedOllama decoded, bool is_chat);
  void generate_raw(const Call& call, const OllamaRequest& request,
                    std::unique_ptr<AnswerEncoder> encoder);
  /// The response that a request goes on from; null where it says none. False where there is none
  /// such, which has been answered.
  bool find_previous(const Call& call, std::shared_ptr<const StoredTurn>& previous);
  void note_dropped(const ChatRequest& request);
  const Tokenizer& tokenizer() const { return *model_->text.tokenizer; }
  bool knows(const std::string& asked) const;
  AnswerIdentity identity(std::string_view prefix, const GenerationFields& generation) const;
  /// No more than the rest of the context; negative, as the client has it, for no limit.
  int64_t tokens_max(const GenerationFields& generation, size_t prompt_tokens) const;

  const std::shared_ptr<OpenModel> model_;
  ServiceOptions options_;
  const int64_t started_;
  Result<std::shared_ptr<const ChatFormat>> format_;
  std::string fingerprint_;
  std::vector<std::atomic<uint64_t>> asked_;  // by route; the last is for paths that there are not
  ResponseStore responses_;
  ResumableStreams streams_;
  std::mutex mutex_;               // guards what follows
  std::set<std::string> dropped_;  // kinds of tools that were told of
  std::vector<std::weak_ptr<Response>> watchers_;
  std::unique_ptr<Scheduler> scheduler_;  // last: its thread may use all of it
};

}  // namespace moeflux::serve
