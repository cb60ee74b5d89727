#include "serve/text_choices.h"

#include <utility>

namespace moeflux::serve {

class TextChoices::Listener : public CompletionListener {
 public:
  Listener(std::shared_ptr<TextChoices> choices, size_t choice)
      : choices_(std::move(choices)), choice_(choice) {}

  bool on_delta(const CompletionDelta& delta) override {
    if (!choices_->streams()) return false;
    return choices_->write_frame(
        text_delta_chunk(choices_->options_.identity, static_cast<int64_t>(choice_), delta,
                         choices_->spelling_, choices_->options_.with_logprobs));
  }
  void on_done(const CompletionPart& part) override {
    choices_->parts_[choice_] = part;
    choices_->end_choice(part.statistics.reason);
  }
  void on_failed(const Error& error) override { choices_->fail(api_error(error)); }

 private:
  const std::shared_ptr<TextChoices> choices_;
  const size_t choice_;
};

TextChoices::TextChoices(Scheduler& scheduler, std::shared_ptr<Response> response,
                         TokenSpelling spelling, TextChoicesOptions options, size_t choices)
    : Choices(scheduler, std::move(response), options.stream),
      spelling_(spelling),
      options_(std::move(options)),
      parts_(choices) {}

std::shared_ptr<CompletionListener> TextChoices::listener(size_t choice) {
  return std::make_shared<Listener>(std::static_pointer_cast<TextChoices>(shared_from_this()),
                                    choice);
}

std::vector<Json> TextChoices::last_frames() const {
  std::vector<Json> frames;
  for (size_t i = 0; i < parts_.size(); ++i) {
    frames.push_back(text_last_chunk(options_.identity, static_cast<int64_t>(i), parts_[i]));
  }
  if (options_.include_usage) {
    frames.push_back(text_usage_chunk(options_.identity, parts_, options_.prompts));
  }
  return frames;
}

Json TextChoices::whole_answer() const {
  return text_completion(options_.identity, parts_, spelling_, options_.with_logprobs,
                         options_.prompts);
}

}  // namespace moeflux::serve
