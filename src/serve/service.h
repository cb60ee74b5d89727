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
#include "chat/conversation.h"
#include "chat/open_model.h"
#include "chat/scheduler.h"
#include "serve/answer_encoder.h"
#include "serve/choices.h"
#include "serve/exchange.h"
#include "serve/job_thread.h"
#include "serve/kept_texts.h"
#include "serve/native/metrics.h"
#include "serve/native/resumable_streams.h"
#include "serve/ollama/request.h"
#include "serve/openai/chat.h"
#include "serve/responses/stored_response.h"

namespace moeflux::serve {

struct ServiceOptions {
  std::string model_name;                    // what clients call it; empty: the folder's name
  std::vector<std::string> aliases = {};     // further names; "*" is any
  std::optional<std::string> template_text;  // in place of the model's own
  RequestDefaults defaults;                  // what requests say nothing of
  SchedulerOptions scheduler;
  /// Leaves out of Anthropic's prompts what is new in every request; see prompt_nonces.h.
  bool steady_prompts = true;
  /// Where OpenAI's responses and conversations are kept, each in a folder in it; empty: in memory,
  /// until the service ends.
  std::string folder = {};
  KeptLimits responses = {.bytes_max = uint64_t{64} << 20, .count_max = 4096};
  /// Nobody's conversation makes room for another's.
  KeptLimits conversations = {
      .bytes_max = uint64_t{64} << 20, .count_max = 4096, .makes_room = false};
  ResumableLimits streams = {};
  /// Told, once for each, of tools that requests have and nobody here can run, and of what is kept
  /// and damaged or could not be kept. Any thread.
  std::function<void(const std::string& line)> on_note = {};
};

class Service {
 public:
  /// A model without a chat template answers
  /// completions alone, and says why. Fails without a tokenizer, and where it cannot keep.
  static Result<std::unique_ptr<Service>> start(std::shared_ptr<OpenModel> model,
                                                ServiceOptions options);
  /// Cancels what runs.
  ~Service();

  /// Answers now or later. Any thread; JSON, template and tokens are made in the call, and
  /// constraints on threads of the service.
  void handle(const Request& request, std::shared_ptr<Response> response);
  /// Requests that are answered from memory, whatever else goes on: /health and the like.
  static bool is_at_once(const Request& request);
  /// Ends the streams of those who watch and would never leave: call it before a server waits for
  /// its connections.
  void end_watching();
  /// Ends the answers of streams that may be come back to, which end with no client.
  void end_streams() { streams_.erase_all(); }
  /// Refuses further texts, and says so at /health.
  void refuse();
  /// The same, and waits for texts that have begun and for what is to survive.
  void drain();
  /// The same; false when `time` is over before.
  bool drain_within(std::chrono::milliseconds time);
  /// A constraint is being compiled, or waits for that.
  bool is_compiling() const { return put_off_bytes_ > 0; }

  const std::string& model_name() const { return options_.model_name; }
  /// Longer prompts are refused unread.
  size_t prompt_bytes_max() const { return prompt_bytes_max_; }
  SchedulerCounters counters() const { return scheduler_->counters(); }
  /// For Prometheus.
  std::string metrics() const;
  /// How often each path was asked for, those too that nobody asked for.
  std::vector<AskedCount> asked() const;

 private:
  struct Call;
  struct Chat;
  class Saved;
  class Claim;
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
  void telemetry(Call& call);
  void plan(Call& call);
  // Conversations that are saved: service_conversations.cc
  void conversations(Call& call);
  void saved_conversation(Call& call);
  void save_conversation(Call& call);
  void delete_conversation(Call& call);
  // Ours and llama.cpp's: service_native.cc
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
  /// Calls `handle` again where it may take long.
  void put_off(Call& call, Handle handle);
  /// Refuses texts that cannot fit the context however they are tokenized, which has been answered.
  bool may_fit(const Call& call, const Json& texts) const;
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
  /// Asks for an answer of one choice, which ends on `ends_on`, see Choices.
  void answer_once(const Call& call, const Chat& chat, std::unique_ptr<AnswerEncoder> encoder,
                   JobThread* ends_on = nullptr);
  DecodedChat decode_messages(const Call& call, bool counts_only) const;
  Json model_json() const;
  Json ollama_model_json() const;
  void answer_ollama(Call& call, DecodedOllama decoded, bool is_chat);
  void generate_raw(Call& call, const OllamaRequest& request,
                    std::unique_ptr<AnswerEncoder> encoder);
  /// Nothing where it is not kept, or damaged, which is noted.
  std::optional<StoredResponse> find_response(const std::string& id);
  /// Items that a request goes on from; none where it names no response. Nothing where there is
  /// none such, which has been answered.
  std::optional<Json> earlier_items(const Call& call);
  void keep_response(const StoredResponse& response);
  /// Nothing where it is not saved, or damaged, which is noted.
  std::optional<Conversation> find_conversation(const std::string& name);
  /// What a chat goes on from and is added to; null where the request names none. Puts the saved
  /// messages before the request's. Nothing where there is none such, or it is being answered,
  /// which has been answered.
  std::optional<std::shared_ptr<Saved>> go_on(Call& call);
  void note(const std::string& line) const;
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
  size_t prompt_bytes_max_ = 0;               // more cannot be what the context takes
  std::vector<std::atomic<uint64_t>> asked_;  // by route; the last is for paths that there are not
  std::unique_ptr<KeptTexts> responses_;
  std::unique_ptr<KeptTexts> conversations_;
  ResumableStreams streams_;
  std::mutex mutex_;               // guards what follows
  std::set<std::string> dropped_;  // kinds of tools that were told of
  std::vector<std::weak_ptr<Response>> watchers_;
  std::set<std::string> answering_;  // conversations, by name
  std::atomic<bool> is_draining_ = false;
  JobThread jobs_;                        // ends of answers that are to be kept
  std::unique_ptr<Scheduler> scheduler_;  // its thread may use all of it
  std::atomic<size_t> put_off_bytes_ = 0;
  JobThread long_jobs_{2};  // last: they use the scheduler too
};

}  // namespace moeflux::serve
