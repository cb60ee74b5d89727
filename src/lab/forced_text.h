// Drafts measured on real text without real weights: a text is forced, which means that its own
// next token counts as the model's choice at every position. Logits are computed whole, then
// replaced, so drafts are accepted exactly as that text accepts them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/drafts/draft_options.h"
#include "chat/drafts/draft_price.h"
#include "chat/open_model.h"
#include "text/tokenizer.h"

namespace moeflux {

/// A part of a forced text: a prompt, or what the model writes behind it.
struct ForcedPart {
  std::vector<TokenId> tokens;
  bool is_prompt = false;
};

/// Parts end with form feeds: prompts, and what is written behind each, in turn. Without a form
/// feed all of the text but its first token is written. Spellings of special tokens are text, since
/// a stop token would end it. Fails with kInvalidArgument where a part has no tokens.
Result<std::vector<ForcedPart>> forced_parts(std::string_view text, const Tokenizer& tokenizer);

/// A forced text from its beginning to its end.
struct ForcedRun {
  int64_t steps = 0;   // of the engine, prompts left out, as in all that follows
  int64_t rows = 0;    // evaluated by these
  int64_t tokens = 0;  // by which they took the text further
  DraftCounts drafts;
  uint64_t ns = 0;
  uint64_t cpu_ns = 0;  // of all threads of the process

  /// Steps of one number of rows, and the evaluation that DraftPrice is told of.
  struct Size {
    int64_t steps = 0;
    double seconds = 0.0;
    double least_seconds = 0.0;  // of one step
  };
  std::map<int64_t, Size> sizes;  // by rows

  double tokens_per_step() const;
};

/// Writes a text once, in a session of its own. The first part is a prompt; parts have tokens. A
/// part is drafted from all that stands before it, as requests are. The worth of drafts is not
/// known when a run begins. For a model
/// that nobody else uses. Fails as Session::eval() does.
Result<ForcedRun> run_forced_text(const std::shared_ptr<OpenModel>& model,
                                  std::span<const ForcedPart> parts, const DraftOptions& drafts);

struct ForcedPairsOptions {
  DraftOptions drafts = {.mode = DraftMode::kAuto};
  int pairs = 5;
  int warm_ups = 1;                                 // runs without drafts before the first pair
  std::function<void(int finished)> progress = {};  // told of each run
};

/// The same text without and with drafts, in turn: A B B A, so that what drifts favours neither.
struct ForcedPairs {
  std::vector<ForcedRun> without;
  std::vector<ForcedRun> with;

  /// The median over pairs of the time without drafts over that with them; 0 without pairs.
  double gain() const;
  double cpu_gain() const;
};
Result<ForcedPairs> run_forced_pairs(const std::shared_ptr<OpenModel>& model,
                                     std::span<const ForcedPart> parts,
                                     const ForcedPairsOptions& options);

}  // namespace moeflux
