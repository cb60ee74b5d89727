// A loaded model as the interfaces of a service share it, and the verbs by which a request becomes
// an answer. Knows no path and no interface's words.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_format.h"
#include "chat/embedding/reranking.h"
#include "chat/open_model.h"
#include "schedule/scheduler.h"
#include "serve/answer/answer_encoder.h"
#include "serve/answer/answer_json.h"
#include "serve/answer/choices.h"
#include "serve/answer/raw_text.h"
#include "serve/kept/keeper.h"
#include "serve/request/chat_request.h"
#include "serve/service_state.h"

namespace moeflux::serve {

struct Call;

struct Chat {
  ChatRequest request;
  ChatPrompt prompt;
  std::shared_ptr<const Constraint> constraint = {};  // of each answer, or null
};

/// Thread-safe.
class Context {
 public:
  /// Fails without a tokenizer, and for a given template that does not compile. The state must
  /// outlive this.
  static Result<std::unique_ptr<Context>> create(std::shared_ptr<OpenModel> model,
                                                 ServiceOptions options, ServiceState& state);

  // --- The model's parts ---

  ServiceState& state() { return state_; }
  OpenModel& model() { return *model_; }
  const std::shared_ptr<OpenModel>& shared_model() const { return model_; }
  const ServiceOptions& options() const { return options_; }
  const Tokenizer& tokenizer() const { return *model_->text.tokenizer; }
  /// Or why there are no chats: a model without a chat template continues texts alone.
  const Result<std::shared_ptr<const ChatFormat>>& format() const { return format_; }
  int64_t context_length() const { return model_->engine->memory_plan().context_length; }
  /// Longer prompts are refused unread.
  size_t prompt_bytes_max() const { return prompt_bytes_max_; }
  Scheduler& scheduler() { return *scheduler_; }
  /// Gives back so much of the experts' cache, or what can be given back of it, in a turn. Returns
  /// Engine::host_bytes() then.
  uint64_t shrink(uint64_t bytes);
  /// Ends what runs; only the destructor may follow.
  void stop() { scheduler_.reset(); }

  // --- From a request to its answer. Impossible requests are answered, with the reason ---

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

 private:
  Context(std::shared_ptr<OpenModel> model, ServiceOptions options, ServiceState& state);

  void note_dropped(const ChatRequest& request);
  /// The text to ask for, which is no longer than the context.
  std::optional<TextRequest> prompted_text(const Call& call, const GenerationFields& generation,
                                           const std::vector<TokenId>& prompt,
                                           int64_t choice) const;

  ServiceState& state_;
  const std::shared_ptr<OpenModel> model_;
  ServiceOptions options_;
  Result<std::shared_ptr<const ChatFormat>> format_;
  Result<Reranker> reranker_;
  std::string fingerprint_;
  size_t prompt_bytes_max_ = 0;           // more cannot be what the context takes
  std::unique_ptr<Scheduler> scheduler_;  // last: its thread may use all of it
};

}  // namespace moeflux::serve
