// Starts sequences of an engine from the states of earlier ones that share their first tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/ids.h"
#include "base/result.h"
#include "engine/prefix_cache.h"

namespace moeflux {

class Engine;
class Sequence;
struct EngineOptions;

/// Belongs to its engine, whose thread rules hold. A client shares its cached states with no other.
class Prefixes {
 public:
  /// Starts an empty sequence from the kept state that shares most first tokens with `tokens`, and
  /// says how many tokens are in the sequence then. They are 0 when nothing fits, at most the
  /// context, and at most all but the last, whose evaluation gives the logits. Fails with
  /// kFailedPrecondition unless the sequence is empty, kResourceExhausted when memory is full.
  Result<int64_t> reuse(Sequence& empty, std::span<const TokenId> tokens,
                        std::string_view client = {});
  /// How many tokens reuse() would give, unless the state cannot be read.
  int64_t find(std::span<const TokenId> tokens, std::string_view client = {});
  /// True when keep() keeps anything.
  bool are_kept() const { return cache_ != nullptr; }
  /// Keeps the sequence's state for reuse(), if it fits the budget; states that were used longest
  /// ago make room. A model with recurrent layers, or windows that the text exceeds, starts from
  /// whole kept states only: keep it before the last token of the prompt. Fails with
  /// kFailedPrecondition on a broken sequence, kIo when the folder cannot be written.
  Status keep(const Sequence& sequence, std::string_view client = {});

 private:
  friend class Engine;
  explicit Prefixes(Engine& engine) : engine_(engine) {}
  Status open(const EngineOptions& options);

  Engine& engine_;
  std::unique_ptr<PrefixCache> cache_;  // null when nothing is kept
};

}  // namespace moeflux
