// Added tokens: literal strings that become one id wherever they stand, found before the splits.
// Immutable and thread-safe after construction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/encoding/byte_range.h"

namespace moeflux {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;      // left out by decode() with skip_special
  bool single_word = false;  // matches only where no word character stands beside it
  bool lstrip = false;       // swallows white space to its left
  bool rstrip = false;       // swallows white space to its right
  bool normalized = false;   // matched after normalisation, by its normalised content
  std::string needle;        // that, where it is not the content
};

/// A stretch of text: one added token (id >= 0), or text between them (id -1, never empty).
struct TextSegment {
  std::string_view text;
  TokenId id = -1;
};

class AddedTokenMatcher {
 public:
  /// `needles` are what to look for, by the text to match; empty ones are left out. When two are
  /// the same text the first counts.
  explicit AddedTokenMatcher(const std::vector<std::pair<std::string, AddedToken>>& needles);

  bool empty() const { return flags_.empty(); }

  struct Found {
    size_t bytes_count = 0;
    int32_t needle = -1;
  };
  /// The longest needle that begins at `begin`, its flags not heeded; nothing has no bytes.
  Found longest_at(std::string_view text, size_t begin) const;

  /// Cuts `text` at the leftmost-longest matches, appending to `out`. Costs at most the text's
  /// length times that of the longest needle; in practice one table look-up a byte.
  /// No match touches one of `inert`, which are sorted and apart.
  void split(std::string_view text, std::vector<TextSegment>* out,
             std::span<const ByteRange> inert = {}) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    int32_t needle = -1;  // the one that ends here
  };
  std::vector<Node> nodes_;            // a trie; children of the root are in roots_
  std::array<uint32_t, 256> roots_{};  // node by first byte; 0 is none
  std::vector<AddedToken> flags_;      // by needle
};

}  // namespace moeflux
