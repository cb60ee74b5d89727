// Where drafts come from: something that proposes tokens that may follow a text. Whatever it
// proposes, the text stays the same; wrong drafts take time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

class Session;

/// Tokens that may follow a text, in order.
struct Draft {
  std::vector<TokenId> tokens = {};
  /// How sure the source is of each token behind those before it, 0 to 1; empty: it cannot say.
  std::vector<float> confidences = {};
  /// Seconds of the call in which the source learned a text that was new to it.
  double follow_seconds = 0.0;
};

/// A question to a source.
struct DraftQuery {
  /// All tokens that were accepted: evaluated ones and the pending one, which is the last.
  std::span<const TokenId> text;
  int64_t tokens_max = 0;  // of the draft
  /// Has evaluated `text` but for its last tokens. Another one after a move, with the same text.
  Session& session;
};

/// A source of one text. Each call's text begins with that of the call before, so a source that
/// follows the text learns what has been added, and forgets its own drafts. Calls may be far apart.
/// For the call whose turn it is; destroyed on any thread.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  /// Empty where nothing is likely. After a failure the source is asked no more: the text goes on
  /// without it.
  virtual Result<Draft> draft(const DraftQuery& query) = 0;

  /// A text's part of draft_all(), and how that ended.
  struct Ask {
    DraftSource& source;
    DraftQuery query;
    Result<Draft> draft = Draft();
  };
  /// draft() of the sources of several texts of one model, all made as this one was.
  virtual void draft_all(std::span<Ask> asks) {
    for (Ask& ask : asks) ask.draft = ask.source.draft(ask.query);
  }
};

}  // namespace moeflux
