#include "cli/logits_source.h"

#include "base/format.h"

namespace moeflux {
namespace {

class EvaluatedLogits final : public LogitsSource {
 public:
  explicit EvaluatedLogits(std::shared_ptr<OpenModel> model) : model_(std::move(model)) {}

  std::string name() const override {
    return formatted("{} on {}", model_->directory, model_->device->name());
  }
  int64_t vocab_size() const override { return model_->engine->spec().vocab_size; }

  Status begin_window(int64_t /*window*/) override {
    sequence_.reset();  // before another takes memory
    MF_ASSIGN_OR_RETURN(sequence_, model_->engine->create_sequence());
    return {};
  }
  Status skip(std::span<const TokenId> tokens) override {
    if (tokens.empty()) return {};
    return model_->engine->eval(*sequence_, tokens, {.logits = LogitsMode::kNone}, {});
  }
  Status read(std::span<const TokenId> tokens, std::vector<float>& rows) override {
    rows.clear();
    return model_->engine->eval(*sequence_, tokens, {.logits = LogitsMode::kAll},
                                [&](int64_t, std::span<const float> more) {
                                  rows.insert(rows.end(), more.begin(), more.end());
                                  return Status();
                                });
  }

 private:
  std::shared_ptr<OpenModel> model_;
  std::unique_ptr<Sequence> sequence_;
};

class RecordedLogits final : public LogitsSource {
 public:
  explicit RecordedLogits(SavedLogits saved) : saved_(std::move(saved)) {}

  std::string name() const override { return saved_.path(); }
  int64_t vocab_size() const override { return saved_.vocab_size(); }
  double least() const override { return kLeastSaved; }

  Status begin_window(int64_t window) override {
    window_ = window;
    position_ = 0;
    return {};
  }
  Status skip(std::span<const TokenId> tokens) override {
    position_ += static_cast<int64_t>(tokens.size());
    return {};
  }
  Status read(std::span<const TokenId> tokens, std::vector<float>& rows) override {
    const auto vocab = static_cast<size_t>(vocab_size());
    rows.resize(tokens.size() * vocab);
    for (size_t i = 0; i < tokens.size(); ++i) {
      MF_RETURN_IF_ERROR(
          saved_.read_row(window_, position_, std::span(rows).subspan(i * vocab, vocab)));
      ++position_;
    }
    return {};
  }

 private:
  SavedLogits saved_;
  int64_t window_ = 0;
  int64_t position_ = 0;
};

}  // namespace

std::unique_ptr<LogitsSource> make_logits_source(std::shared_ptr<OpenModel> model) {
  return std::make_unique<EvaluatedLogits>(std::move(model));
}

std::unique_ptr<LogitsSource> make_logits_source(SavedLogits saved) {
  return std::make_unique<RecordedLogits>(std::move(saved));
}

}  // namespace moeflux
