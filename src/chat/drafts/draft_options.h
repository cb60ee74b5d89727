// Whether and how texts draft tokens ahead of the model, which then evaluates several in one step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

/// kAuto: where it has paid so far.
enum class DraftMode : uint8_t { kOff, kAuto, kOn };

/// The longest draft.
constexpr int64_t kDraftTokensMax = 64;

struct DraftOptions {
  DraftMode mode = DraftMode::kOff;
  int64_t tokens_max = kDraftTokensMax;  // of one step, 1 to kDraftTokensMax
  /// So many tokens at the end must have come before. Copies of real texts that are shorter
  /// continue otherwise too often: a wrong draft costs a step of many rows.
  int64_t match_min = 8;
  /// For tests: what may follow the tokens so far, at most so many, instead of a repetition.
  std::function<std::vector<TokenId>(std::span<const TokenId> text, int64_t tokens_max)> source =
      {};
};

}  // namespace moeflux
