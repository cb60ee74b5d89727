// One choice of an answer in a conversation while it is generated: tokens are parsed by the model's
// format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "chat/answer_reader.h"
#include "serve/answer/choices.h"

namespace moeflux::serve {

class ChatText : public ChoiceReceiver {
 public:
  ChatText(std::shared_ptr<const ChatFormat> format, AnswerOptions options,
           std::shared_ptr<Choices> choices, size_t choice);

  Verdict on_token(const DrawnToken& token) override;
  void on_done(const TextStatistics& statistics) override;

 private:
  bool tell_all(std::vector<OutputEvent>& events);
  void collect(const OutputEvent& event, AnswerDelta& delta);

  const std::shared_ptr<const ChatFormat> format_;
  AnswerReader reader_;
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
