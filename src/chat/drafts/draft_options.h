// Whether and how texts draft tokens ahead of the model, which then evaluates several in one step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "chat/drafts/draft_source.h"

namespace moeflux {

/// kAuto: where it has paid so far.
enum class DraftMode : uint8_t { kOff, kAuto, kOn };

/// The longest draft.
constexpr int64_t kDraftTokensMax = 64;

struct DraftOptions {
  DraftMode mode = DraftMode::kAuto;
  int64_t tokens_max = kDraftTokensMax;  // of one step, 1 to kDraftTokensMax
  /// So many tokens at the end must have come before. Over benchmarks/texts two find more that is
  /// wrong, and four find less.
  int64_t match_min = 3;
  /// Folder or GGUF file of a model that drafts as well, with the same vocabulary; empty: none.
  std::string model = {};
  /// How likely such a model has to find a token for it to be drafted, 0 to 1.
  float confidence_min = 0.4f;
  /// Tokens that the model's own layer for them drafts at most, where the text repeats nothing; 0:
  /// none. Needs EngineOptions::draft_layer.
  int64_t mtp_tokens = 0;
  /// Makes a source for a text, which is asked where the text repeats nothing; or null.
  std::function<std::unique_ptr<DraftSource>()> make_source = {};
  /// Told why a text's source has failed. That text has no more drafts from it.
  std::function<void(const std::string& line)> on_failure = {};
};

}  // namespace moeflux
