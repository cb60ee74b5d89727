// Texts that repetitions do not reach across, as the tokens that a vocabulary makes of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sampling/dry.h"
#include "text/tokenizer.h"

namespace moeflux {

/// A token breaks when it contains one of the texts, or when it ends with the beginning of one and
/// the tokens of the rest follow, at most 20 of them. Looks at the whole vocabulary. Fails as
/// Tokenizer::encode() does.
Result<DryBreakers> make_dry_breakers(std::span<const std::string> texts,
                                      const Tokenizer& tokenizer);

/// Keeps those that were made last. Not thread-safe.
class DryBreakerCache {
 public:
  /// The tokenizer is always the same.
  Result<std::shared_ptr<const DryBreakers>> of(const std::vector<std::string>& texts,
                                                const Tokenizer& tokenizer);

 private:
  std::vector<std::string> texts_;
  std::shared_ptr<const DryBreakers> breakers_;
};

}  // namespace moeflux
