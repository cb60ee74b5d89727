// The pre_tokenizer Metaspace of tokenizer.json: spaces become U+2581, and a text may get one in
// front. Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"

namespace moeflux {

class Metaspace {
 public:
  /// Fails with kUnsupported for another replacement or prepend_scheme, and with kCorruption where
  /// add_prefix_space, which older files have, contradicts the scheme.
  static Result<Metaspace> parse(const Json& spec);

  /// The text between two added tokens; `is_first` when it is where the whole text begins.
  std::string apply(std::string_view text, bool is_first) const;

  /// Whether each U+2581 begins a piece.
  bool splits() const { return splits_; }

 private:
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };

  Prepend prepend_ = Prepend::kAlways;
  bool splits_ = true;
};

}  // namespace moeflux
