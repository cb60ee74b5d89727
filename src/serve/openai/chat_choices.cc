#include "serve/openai/chat_choices.h"

#include <utility>

#include "serve/wire_json.h"

namespace moeflux::serve {

class ChatChoices::Listener : public AnswerListener {
 public:
  Listener(std::shared_ptr<ChatChoices> choices, size_t choice)
      : choices_(std::move(choices)), choice_(choice) {}

  void on_progress(const PromptProgress& progress) override {
    if (!choices_->options_.return_progress || !choices_->streams()) return;
    choices_->write(data_frame(choices_->with_usage_null(chat_progress_chunk(
        choices_->options_.identity, static_cast<int64_t>(choice_), progress))));
  }
  bool on_delta(const AnswerDelta& delta) override { return choices_->tell(choice_, delta); }
  void on_done(const AnswerPart& answer) override {
    choices_->answers_[choice_] = answer;
    choices_->end_choice(answer.statistics.reason);
  }
  void on_failed(const Error& error) override { choices_->fail(api_error(error)); }

 private:
  const std::shared_ptr<ChatChoices> choices_;
  const size_t choice_;
};

ChatChoices::ChatChoices(Scheduler& scheduler, AnswerTarget target, TokenSpelling spelling,
                         ChatChoicesOptions options, size_t choices, JobThread* ends_on)
    : Choices(scheduler, std::move(target), options.stream, ends_on),
      spelling_(spelling),
      options_(std::move(options)),
      answers_(choices),
      paces_(choices) {}

std::shared_ptr<AnswerListener> ChatChoices::listener(size_t choice) {
  return std::make_shared<Listener>(std::static_pointer_cast<ChatChoices>(shared_from_this()),
                                    choice);
}

// With include_usage every frame has the field.
Json ChatChoices::with_usage_null(Json frame) const {
  if (options_.include_usage) frame["usage"] = nullptr;
  return frame;
}

std::string ChatChoices::first_bytes() {
  std::string bytes;
  for (size_t i = 0; i < answers_.size(); ++i) {
    bytes +=
        data_frame(with_usage_null(chat_first_chunk(options_.identity, static_cast<int64_t>(i))));
  }
  return bytes;
}

bool ChatChoices::tell(size_t choice, const AnswerDelta& delta) {
  if (!streams()) return false;
  Json frame = chat_delta_chunk(options_.identity, static_cast<int64_t>(choice), delta, spelling_);
  if (frame.is_null()) return false;
  if (options_.timings_per_token) {
    const auto now = std::chrono::steady_clock::now();
    Pace& pace = paces_[choice];
    if (pace.tokens++ == 0) pace.first = now;
    const double ms = std::chrono::duration<double, std::milli>(now - pace.first).count();
    frame["timings"] = {{"predicted_n", pace.tokens}, {"predicted_ms", ms}};
  }
  return write(data_frame(with_usage_null(std::move(frame))));
}

std::optional<ApiError> ChatChoices::before_end() {
  return options_.on_end ? options_.on_end(answers_.front()) : std::nullopt;
}

std::string ChatChoices::last_bytes() {
  std::string bytes;
  for (size_t i = 0; i < answers_.size(); ++i) {
    Json frame = chat_last_chunk(options_.identity, static_cast<int64_t>(i), answers_[i]);
    frame["timings"] = timings_json(answers_[i].statistics);
    if (i + 1 == answers_.size()) frame["moeflux"] = moeflux_json(options_.identity, answers_);
    bytes += data_frame(with_usage_null(std::move(frame)));
  }
  if (options_.include_usage) bytes += data_frame(chat_usage_chunk(options_.identity, answers_));
  bytes += kStreamDone;
  return bytes;
}

std::string ChatChoices::error_bytes(const ApiError& error) {
  return data_frame(error_body(error));
}

Json ChatChoices::whole_answer() {
  return chat_completion(options_.identity, answers_, spelling_, options_.with_logprobs);
}

}  // namespace moeflux::serve
