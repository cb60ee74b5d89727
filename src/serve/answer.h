// One choice of a request while it is generated: the scheduler's tokens become what protocols tell,
// and are collected for those that tell everything at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/answer_reader.h"
#include "chat/scheduler.h"

namespace moeflux::serve {

/// A token with what the model thought of it.
struct ScoredToken {
  TokenId token = 0;
  TokenLogprobs logprobs;
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON
  bool complete = false;
};

/// What is new: one kind of text, and the scores of content's tokens.
struct AnswerDelta {
  OutputKind kind = OutputKind::kContent;
  int call = -1;  // of a call's kinds
  std::string text;
  std::string id;                   // of kCallBegin
  bool complete = false;            // of kCallEnd: the arguments are whole
  std::vector<ScoredToken> scores;  // of kContent
};

/// All that was said so far.
struct AnswerPart {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<ScoredToken> scores;
  std::vector<TokenId> tokens;  // as they were drawn, with one that ended the text
  int complete_calls = 0;
  int misfits = 0;
  int64_t reasoning_tokens = 0;
  std::string stopped_by;  // the request's stop string that ended it; empty: none did
  TextStatistics statistics;
};

/// Who hears of one choice, on the scheduler's thread.
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual void on_progress(const PromptProgress& progress) = 0;
  /// True to compute nothing more until Scheduler::resume().
  virtual bool on_delta(const AnswerDelta& delta) = 0;
  virtual void on_done(const AnswerPart& answer) = 0;
  virtual void on_failed(const Error& error) = 0;
};

/// A choice that is parsed by the model's format.
class ChatAnswer : public TextReceiver {
 public:
  ChatAnswer(std::shared_ptr<const ChatFormat> format, AnswerOptions options,
             std::shared_ptr<AnswerListener> listener);

  void on_progress(const PromptProgress& progress) override { listener_->on_progress(progress); }
  Verdict on_token(const DrawnToken& token) override;
  void on_done(const TextStatistics& statistics) override;
  void on_failed(const Error& error) override { listener_->on_failed(error); }

 private:
  bool tell(std::vector<OutputEvent>& events);
  void collect(const OutputEvent& event, AnswerDelta& delta);

  const std::shared_ptr<const ChatFormat> format_;
  AnswerReader reader_;
  const std::shared_ptr<AnswerListener> listener_;
  AnswerPart answer_;
  /// Tokens whose text is not told yet, by where it ends.
  struct Pending {
    uint64_t begin;
    uint64_t end;
    ScoredToken score;
  };
  std::vector<Pending> pending_;
  uint64_t generated_bytes_ = 0;
};

}  // namespace moeflux::serve
