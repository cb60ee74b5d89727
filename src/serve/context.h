// Shared by the interfaces of a service: the model, stored objects, and the verbs by which a
// request becomes an answer. Knows no path and no interface's words.
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
#include "chat/embedding/reranking.h"
#include "chat/open_model.h"
#include "schedule/scheduler.h"
#include "serve/answer/answer_encoder.h"
#include "serve/answer/answer_grammar.h"
#include "serve/answer/answer_json.h"
#include "serve/answer/choices.h"
#include "serve/answer/raw_text.h"
#include "serve/kept/job_thread.h"
#include "serve/kept/keeper.h"
#include "serve/kept/resumable_streams.h"
#include "serve/metrics.h"
#include "serve/request/chat_request.h"

namespace moeflux::serve {

struct Call;

struct ServiceOptions {
  std::string model_name;  // what clients call it; empty: the folder's name
  /// Further names; "*" is any. Names that differ by case, folder, ".gguf" or ":latest" are one.
  std::vector<std::string> aliases = {};
  std::optional<std::string> template_text;  // in place of the model's own
  std::string template_file = {};            // where it is from, for messages
  bool reranks = false;                      // see Reranker::create()
  RequestDefaults defaults;                  // what requests say nothing of
  SchedulerOptions scheduler;
  /// Leaves out of Anthropic's prompts what is new in every request; see prompt_nonces.h.
  bool steady_prompts = true;
  /// Where OpenAI's responses and conversations are kept, each in a folder in it; empty: in memory,
  /// until the service ends.
  std::string folder = {};
  ShelfLimits responses = {.bytes_max = uint64_t{64} << 20, .count_max = 4096};
  /// Nobody's conversation makes room for another's.
  ShelfLimits conversations = {
      .bytes_max = uint64_t{64} << 20, .count_max = 4096, .makes_room = false};
  ResumableLimits streams = {};
  /// Told, once for each, of tools that requests have and nobody here can run and of names that
  /// nobody reads, and of what is kept and damaged or could not be kept. Any thread.
  std::function<void(const std::string& line)> on_note = {};
};

/// A chat request with its prompt.
struct Chat {
  ChatRequest request;
  ChatPrompt prompt;
  std::shared_ptr<const Constraint> constraint = {};  // of each answer, or null
};

/// Thread-safe.
class Context {
 public:
  /// Fails without a tokenizer, where it cannot keep, and for a given template that does not
  /// compile.
  static Result<std::unique_ptr<Context>> create(std::shared_ptr<OpenModel> model,
                                                 ServiceOptions options);

  // --- The service's parts ---

  OpenModel& model() { return *model_; }
  const ServiceOptions& options() const { return options_; }
  const Tokenizer& tokenizer() const { return *model_->text.tokenizer; }
  /// Or why there are no chats: a model without a chat template continues texts alone.
  const Result<std::shared_ptr<const ChatFormat>>& format() const { return format_; }
  int64_t context_length() const { return model_->engine->memory_plan().context_length; }
  /// Longer prompts are refused unread.
  size_t prompt_bytes_max() const { return prompt_bytes_max_; }
  int64_t started() const { return started_; }  // seconds since 1970
  Scheduler& scheduler() { return *scheduler_; }
  Keeper& responses() { return *responses_; }
  Keeper& conversations() { return *conversations_; }
  ResumableStreams& streams() { return streams_; }
  /// Where answers end that are to be kept.
  JobThread& jobs() { return jobs_; }
  /// `once`: unless the same was said before.
  void note(const std::string& line, bool once = false);
  /// Names of a request that nobody reads, once for each.
  void note_ignored(const GenerationFields& generation);

  // --- From a request to its answer. Impossible requests are answered, with the reason ---

  /// The answer where the service does not go by that name.
  std::optional<ApiError> unknown_model(const std::string& name) const;
  /// Refuses texts that cannot fit the context however they are tokenized.
  bool may_fit(const Call& call, const Json& texts) const;
  /// The request with its prompt and what its answers are held to.
  std::optional<Chat> read_chat(Call& call, DecodedChat decoded);
  /// Asks for it, in all of its choices. An answer that is to be kept ends on jobs().
  void answer(const Call& call, const Chat& chat, std::unique_ptr<AnswerEncoder> encoder,
              const std::shared_ptr<KeptAnswer>& kept = nullptr);
  /// The same without a conversation, one choice of a prompt behind the other.
  void complete(Call& call, const RawRequest& request, std::unique_ptr<AnswerEncoder> encoder);
  /// Calls a step of texts that are evaluated beside the scheduler, in a turn of the model. Fails
  /// with kCancelled where the client has left.
  Status in_turn(const Call& call, const std::function<Status()>& step) const;
  /// Or why the model does not rerank.
  const Result<Reranker>& reranker() const { return reranker_; }
  AnswerIdentity identity(std::string_view prefix, const GenerationFields& generation) const;

  // --- Threads and ends ---

  /// A stream without an end; see end_watching().
  void watch(const std::shared_ptr<Response>& watcher);
  /// Ends the streams of those who watch and would never leave.
  void end_watching();
  bool is_draining() const { return is_draining_; }
  /// Takes nothing new.
  void refuse();
  void count_asked(size_t route) { ++asked_[route]; }
  /// How often each path was asked for, those too that nobody asked for.
  std::vector<AskedCount> asked() const;
  /// For Prometheus.
  std::string metrics() const;

 private:
  Context(std::shared_ptr<OpenModel> model, ServiceOptions options);

  void note_dropped(const ChatRequest& request);
  /// The text to ask for, which is no longer than the context.
  std::optional<TextRequest> prompted_text(const Call& call, const GenerationFields& generation,
                                           const std::vector<TokenId>& prompt,
                                           int64_t choice) const;

  const std::shared_ptr<OpenModel> model_;
  ServiceOptions options_;
  const int64_t started_;
  Result<std::shared_ptr<const ChatFormat>> format_;
  Result<Reranker> reranker_;
  std::string fingerprint_;
  size_t prompt_bytes_max_ = 0;               // more cannot be what the context takes
  std::vector<std::atomic<uint64_t>> asked_;  // by route; the last is for paths that there are not
  std::unique_ptr<Keeper> responses_;
  std::unique_ptr<Keeper> conversations_;
  ResumableStreams streams_;
  std::mutex mutex_;            // guards what follows
  std::set<std::string> told_;  // lines that were noted once
  std::vector<std::weak_ptr<Response>> watchers_;
  std::atomic<bool> is_draining_ = false;
  JobThread jobs_;                        // ends of answers that are to be kept
  std::unique_ptr<Scheduler> scheduler_;  // last: its thread may use all of it
};

}  // namespace moeflux::serve
