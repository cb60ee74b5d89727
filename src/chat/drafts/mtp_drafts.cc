#include "chat/drafts/mtp_drafts.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "chat/session.h"

namespace moeflux {
namespace {

// A further token takes about a fifth of a step and comes with at most this probability.
constexpr float kChainConfidenceMin = 0.25f;

}  // namespace

class MtpDrafts final : public DraftSource {
 public:
  explicit MtpDrafts(int64_t tokens_max) : tokens_max_(tokens_max) {}

  Result<Draft> draft(const DraftQuery& query) override {
    Ask ask{.source = *this, .query = query};
    draft_all(std::span(&ask, 1));
    return std::move(ask.draft);
  }

  // In common steps of the engine.
  void draft_all(std::span<Ask> asks) override {
    std::vector<Engine::DraftItem> items;
    for (const Ask& ask : asks) {
      Sequence& sequence = *ask.query.session.sequence_;
      // The last of these is pending, and those before it were lost with drafts behind them.
      const int64_t behind = std::ssize(ask.query.text) - sequence.length();
      items.push_back({.sequence = &sequence,
                       .request = {.token = ask.query.text.back(),
                                   .ahead = behind - 1,
                                   .count = std::min(tokens_max_, ask.query.tokens_max),
                                   .confidence_min = kChainConfidenceMin}});
    }
    const Status done = asks.front().query.session.engine().draft(items);
    for (size_t i = 0; i < items.size(); ++i) {
      asks[i].draft = Draft{.tokens = std::move(items[i].tokens),
                            .confidences = std::move(items[i].confidences)};
      if (!done.ok()) asks[i].draft = done.error();
    }
  }

 private:
  const int64_t tokens_max_;
};

std::function<std::unique_ptr<DraftSource>()> mtp_source(int64_t tokens_max) {
  return [tokens_max] { return std::make_unique<MtpDrafts>(tokens_max); };
}

}  // namespace moeflux
