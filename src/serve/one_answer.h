// The answer to a request that has one choice, from the scheduler to the client through an encoder.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "serve/answer_encoder.h"
#include "serve/choices.h"

namespace moeflux::serve {

class OneAnswer : public Choices {
 public:
  /// See Choices.
  OneAnswer(Scheduler& scheduler, AnswerTarget target, bool stream,
            std::unique_ptr<AnswerEncoder> encoder, JobThread* ends_on);

  /// Who hears of the answer; keeps this alive.
  std::shared_ptr<AnswerListener> listener();

 private:
  class Listener;
  std::string first_bytes() override { return begin_; }
  std::optional<ApiError> before_end() override {
    last_ = encoder_->end(answer_);
    return std::nullopt;
  }
  std::string last_bytes() override { return std::move(last_); }
  Json whole_answer() override { return encoder_->whole(); }
  std::string error_bytes(const ApiError& error) override { return encoder_->fail(error); }

  /// From the begin on, the scheduler's thread alone; where the answer ends, that one's.
  const std::unique_ptr<AnswerEncoder> encoder_;
  const std::string begin_;
  AnswerPart answer_;
  std::string last_;
};

}  // namespace moeflux::serve
