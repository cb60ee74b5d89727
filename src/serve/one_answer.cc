#include "serve/one_answer.h"

#include <utility>

namespace moeflux::serve {

class OneAnswer::Listener : public AnswerListener {
 public:
  explicit Listener(std::shared_ptr<OneAnswer> answer) : answer_(std::move(answer)) {}

  void on_progress(const PromptProgress& progress) override {
    tell(answer_->encoder_->progress(progress));
  }
  bool on_delta(const AnswerDelta& delta) override { return tell(answer_->encoder_->delta(delta)); }
  void on_done(const AnswerPart& answer) override {
    answer_->answer_ = answer;
    answer_->end_choice(answer.statistics.reason);
  }
  void on_failed(const Error& error) override { answer_->fail(api_error(error)); }

 private:
  bool tell(std::string bytes) { return answer_->streams() && answer_->write(std::move(bytes)); }

  const std::shared_ptr<OneAnswer> answer_;
};

OneAnswer::OneAnswer(Scheduler& scheduler, AnswerTarget target, bool stream,
                     std::unique_ptr<AnswerEncoder> encoder, JobThread* ends_on)
    : Choices(scheduler, std::move(target), stream, ends_on),
      encoder_(std::move(encoder)),
      begin_(encoder_->begin()) {}

std::shared_ptr<AnswerListener> OneAnswer::listener() {
  return std::make_shared<Listener>(std::static_pointer_cast<OneAnswer>(shared_from_this()));
}

}  // namespace moeflux::serve
