#include "chat/drafts/mtp_drafts.h"

#include <algorithm>
#include <utility>

#include "chat/session.h"

namespace moeflux {

class MtpDrafts final : public DraftSource {
 public:
  explicit MtpDrafts(int64_t tokens_max) : tokens_max_(tokens_max) {}

  Result<Draft> draft(const DraftQuery& query) override {
    Sequence& sequence = *query.session.sequence_;
    // The last of these is pending, and those before it were lost with drafts behind them.
    const int64_t behind = std::ssize(query.text) - sequence.length();
    MF_ASSIGN_OR_RETURN(
        std::vector<TokenId> tokens,
        query.session.engine().draft(sequence, {.token = query.text.back(),
                                                .ahead = behind - 1,
                                                .count = std::min(tokens_max_, query.tokens_max)}));
    return Draft{.tokens = std::move(tokens)};
  }

 private:
  const int64_t tokens_max_;
};

std::function<std::unique_ptr<DraftSource>()> mtp_source(int64_t tokens_max) {
  return [tokens_max] { return std::make_unique<MtpDrafts>(tokens_max); };
}

}  // namespace moeflux
