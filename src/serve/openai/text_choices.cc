#include "serve/openai/text_choices.h"

#include <utility>

#include "serve/wire_json.h"

namespace moeflux::serve {

class TextChoices::Listener : public CompletionListener {
 public:
  Listener(std::shared_ptr<TextChoices> choices, size_t choice)
      : choices_(std::move(choices)), choice_(choice) {}

  bool on_delta(const CompletionDelta& delta) override {
    if (!choices_->streams()) return false;
    return choices_->write(
        data_frame(text_delta_chunk(choices_->options_.identity, static_cast<int64_t>(choice_),
                                    delta, choices_->spelling_, choices_->options_.with_logprobs)));
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

TextChoices::TextChoices(Scheduler& scheduler, AnswerTarget target, TokenSpelling spelling,
                         TextChoicesOptions options, size_t choices)
    : Choices(scheduler, std::move(target), options.stream),
      spelling_(spelling),
      options_(std::move(options)),
      parts_(choices) {}

std::shared_ptr<CompletionListener> TextChoices::listener(size_t choice) {
  return std::make_shared<Listener>(std::static_pointer_cast<TextChoices>(shared_from_this()),
                                    choice);
}

std::string TextChoices::last_bytes() {
  std::string bytes;
  for (size_t i = 0; i < parts_.size(); ++i) {
    bytes += data_frame(text_last_chunk(options_.identity, static_cast<int64_t>(i), parts_));
  }
  if (options_.include_usage) {
    bytes += data_frame(text_usage_chunk(options_.identity, parts_, options_.prompts));
  }
  bytes += kStreamDone;
  return bytes;
}

std::string TextChoices::error_bytes(const ApiError& error) {
  return data_frame(error_body(error));
}

Json TextChoices::whole_answer() {
  return text_completion(options_.identity, parts_, spelling_, options_.with_logprobs,
                         options_.prompts);
}

}  // namespace moeflux::serve
