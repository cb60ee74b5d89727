// One sequence evaluated: the last token's logits, or the best of them.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace moeflux {

/// A view that lives until the engine evaluates again.
inline Result<std::span<const float>> eval_last(Engine& engine, Sequence& sequence,
                                                std::span<const TokenId> tokens,
                                                StepPhase phase = StepPhase::kPrompt,
                                                std::stop_token stop = {}) {
  std::span<const float> last;
  MF_RETURN_IF_ERROR(engine.eval(sequence, tokens, {.stop = std::move(stop), .phase = phase},
                                 [&](int64_t, std::span<const float> rows) {
                                   last = rows;
                                   return Status();
                                 }));
  return last;
}

/// In decode.
inline Result<std::vector<TokenLogit>> eval_best(Engine& engine, Sequence& sequence,
                                                 std::span<const TokenId> tokens,
                                                 const BestLogits& best) {
  StepItem item{.sequence = &sequence,
                .tokens = tokens,
                .options = {.best = best, .phase = StepPhase::kDecode}};
  engine.eval_step(std::span(&item, 1));
  MF_RETURN_IF_ERROR(item.outcome);
  return std::move(item.best);
}

}  // namespace moeflux
