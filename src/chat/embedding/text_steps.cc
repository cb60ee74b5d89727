#include "chat/embedding/text_steps.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "base/format.h"

namespace moeflux {
namespace {

/// A short text holds pages of 256 tokens, so many of them take memory as long ones do.
constexpr size_t kTextsOfStepMax = 32;

/// The texts of a group, whose sequences end with it.
class Group {
 public:
  Group(OpenModel& model, std::span<const std::vector<TokenId>> texts, size_t first, size_t count,
        const TextSteps& steps)
      : model_(model), texts_(texts.subspan(first, count)), first_(first), steps_(steps) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    for (auto& sequence : sequences_) model_.turns.retire(std::move(sequence));
  }

  Status run() {
    const int64_t chunk = model_.engine->prefill_chunk();
    // Only a text that has a group of its own takes several.
    for (int64_t begin = 0; begin < longest(); begin += chunk) {
      MF_RETURN_IF_ERROR(steps_.in_turn([&] { return step(begin, chunk); }));
    }
    return {};
  }

 private:
  int64_t longest() const {
    size_t longest = 0;
    for (const auto& text : texts_) longest = std::max(longest, text.size());
    return static_cast<int64_t>(longest);
  }

  Status step(int64_t begin, int64_t chunk) {
    Engine& engine = *model_.engine;
    while (sequences_.size() < texts_.size()) {
      MF_ASSIGN_OR_RETURN(auto sequence, engine.create_sequence());
      sequences_.push_back(std::move(sequence));
    }
    std::vector<StepItem> items;
    uint64_t tokens = 0;
    for (size_t i = 0; i < texts_.size(); ++i) {
      const auto length = static_cast<int64_t>(texts_[i].size());
      const int64_t count = std::min(chunk, length - begin);
      items.push_back(item(
          i, std::span(texts_[i]).subspan(static_cast<size_t>(begin), static_cast<size_t>(count))));
      if (begin + count < length) drop_last_rows(items.back());
      tokens += static_cast<uint64_t>(count);
    }
    const auto started = std::chrono::steady_clock::now();
    engine.eval_step(items);
    const auto time = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - started);
    model_.publish(tokens, static_cast<uint64_t>(time.count()));
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].outcome.ok()) continue;
      return items[i].outcome.error().with_context(formatted("text {}", first_ + i));
    }
    return {};
  }

  StepItem item(size_t i, std::span<const TokenId> tokens) {
    StepItem item{.sequence = sequences_[i].get(),
                  .tokens = tokens,
                  .options = {.logits = steps_.logits, .hidden = steps_.hidden}};
    item.sink = [this, i](int64_t position, std::span<const float> rows) {
      if (steps_.on_logits) steps_.on_logits(first_ + i, position, rows);
      return Status();
    };
    item.hidden_sink = [this, i](int64_t position, std::span<const float> rows) {
      if (steps_.on_hidden) steps_.on_hidden(first_ + i, position, rows);
      return Status();
    };
    return item;
  }

  // Nobody wants the last token of a piece that others follow.
  static void drop_last_rows(StepItem& item) {
    for (LogitsMode* mode : {&item.options.logits, &item.options.hidden}) {
      if (*mode == LogitsMode::kLast) *mode = LogitsMode::kNone;
    }
  }

  OpenModel& model_;
  const std::span<const std::vector<TokenId>> texts_;
  const size_t first_;  // the number of the first
  const TextSteps& steps_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

// Texts from `first` on that fit one step, at least one.
size_t group_size(const Engine& engine, std::span<const std::vector<TokenId>> texts, size_t first) {
  const uint64_t bytes_max = engine.state_room_bytes() / 2;
  int64_t tokens = 0;
  uint64_t bytes = 0;
  size_t count = 0;
  while (first + count < texts.size() && count < kTextsOfStepMax) {
    const auto length = static_cast<int64_t>(texts[first + count].size());
    tokens += length;
    bytes += engine.state_bytes(length);
    if (count > 0 && (tokens > engine.prefill_chunk() || bytes > bytes_max)) break;
    ++count;
  }
  return count;
}

}  // namespace

Status in_this_turn(const std::function<Status()>& step) { return step(); }

Status evaluate_texts(OpenModel& model, std::span<const std::vector<TokenId>> texts,
                      const TextSteps& steps) {
  for (size_t first = 0; first < texts.size();) {
    const size_t count = group_size(*model.engine, texts, first);
    MF_RETURN_IF_ERROR(Group(model, texts, first, count, steps).run());
    first += count;
  }
  return {};
}

}  // namespace moeflux
