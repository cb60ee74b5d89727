// A client's request to the scheduler, and the calls by which it hears of its results.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "chat/continuation.h"
#include "chat/drafts/draft_price.h"
#include "chat/drawn_token.h"
#include "constraint/constraint.h"
#include "engine/engine.h"
#include "sampling/sampler_options.h"
#include "schedule/route_record.h"

namespace moeflux {

/// Never given twice by one scheduler.
using TextRequestId = uint64_t;

constexpr int32_t kTopLogprobsMax = 20;

struct TextRequest {
  std::vector<TokenId> prompt;  // at least one token
  SamplerOptions sampler = {};
  /// Tokens that follow: negative until the text or the context ends, 0 for the prompt alone.
  int64_t tokens_max = -1;
  std::vector<TokenId> stop_tokens = {};  // beside the model's
  bool ignore_model_stop_tokens = false;  // they are then never drawn
  /// Before so many tokens none ends the text, unless a constraint leaves nothing else.
  int64_t tokens_min = 0;
  /// No others are drawn, stop tokens neither, unless a constraint leaves nothing of them. Empty:
  /// any.
  std::vector<TokenId> allowed_tokens = {};
  /// Log-probabilities of each token that follows: negative none, 0 its own, otherwise so many of
  /// the best beside it, at most kTopLogprobsMax.
  int32_t top_logprobs = -1;
  /// These are of what was drawn from: behind all steps of the sampler, 0 of probability for
  /// others.
  bool sampled_logprobs = false;
  /// The same, or a token's own at least, of each token of the prompt but the first. All of the
  /// prompt is evaluated then.
  bool prompt_logprobs = false;
  std::shared_ptr<const Constraint> constraint = {};  // of the text that follows, or null
  bool reuse = true;                                  // begin from what was kept of earlier texts
  bool keep = true;                                   // keep this text's state for later ones
  /// The client of the text: it shares states with that client's alone, as what is reused, and how
  /// soon an answer begins, tells what others have asked.
  std::string client = {};
  /// Receives the routes of the tokens that follow, or null.
  std::shared_ptr<RouteRecord> routes = {};
  /// One of a client's request whose first text was taken: a full queue takes this one as well.
  bool is_further = false;

  int64_t prompt_length() const { return static_cast<int64_t>(prompt.size()); }
};

struct PromptProgress {
  int64_t queue_position = 0;  // 1: the next to begin; 0: it has begun
  int64_t total = 0;           // tokens of the prompt
  int64_t cached = 0;          // of these, evaluated by earlier texts
  int64_t processed = 0;       // evaluated so far, with those
  double seconds = 0.0;        // that evaluating them took
};

struct TextStatistics {
  FinishReason reason = FinishReason::kCancelled;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;     // of these, begun from
  int64_t generated_tokens = 0;  // without a stop token
  double queued_seconds = 0.0;   // until it began
  double prefill_seconds = 0.0;  // of evaluation; waiting for others and receivers left out
  double decode_seconds = 0.0;   // the same
  ExpertStats experts;           // of both
  DraftCounts drafts;
};

/// The receiver's answer to a token.
struct Verdict {
  bool stop = false;  // end the text here, as kStopString
  bool park = false;  // compute nothing more until Scheduler::resume()
  /// Tokens that follow instead of drawn ones; told as those are, and behind earlier forced ones.
  std::vector<TokenId> forced = {};
};

/// Receives what happens to one request, on the scheduler's thread and in order. Every call must be
/// quick: nobody's text goes on meanwhile. Calls may submit, cancel and resume, nothing else of the
/// scheduler.
class TextReceiver {
 public:
  virtual ~TextReceiver() = default;
  /// When the place in the queue changes, when the text begins, and after each piece of the prompt.
  virtual void on_progress(const PromptProgress& /*progress*/) {}
  /// Once, after the last piece of the prompt, if they were asked for.
  virtual void on_prompt_logprobs(std::span<const TokenLogprobs> /*logprobs*/) {}
  /// A token that follows. Special tokens have their spelling as text. The held-back bytes of a
  /// character come with the last token, as U+FFFD. The verdict on a last token changes nothing.
  virtual Verdict on_token(const DrawnToken& token) = 0;
  /// The last call, or
  virtual void on_done(const TextStatistics& statistics) = 0;
  /// this: kIo and kCorruption for experts that cannot be read, kResourceExhausted where memory is
  /// not enough, kInvalidArgument for logits that nothing can be drawn from. Nobody else's text is
  /// concerned, and the same request may succeed later.
  virtual void on_failed(const Error& error) = 0;
};

}  // namespace moeflux
