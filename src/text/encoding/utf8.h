// UTF-8 as bytes arrive: decoding one character, repairing ill-formed text, and repairing a stream.
// Repair is the Unicode "maximal subpart" rule, as Python's errors="replace": each maximal subpart
// of an ill-formed sequence becomes one U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moeflux {

enum class Utf8Kind {
  kCharacter,   // a well-formed character
  kInvalid,     // bytes to be replaced by one U+FFFD
  kIncomplete,  // well-formed so far, but the text ends inside the character
};

struct Utf8Step {
  Utf8Kind kind;
  char32_t code_point;  // of a kCharacter, else 0
  size_t bytes_count;   // 1..4; how many bytes the step covers
};

/// Looks at the start of `text`, which must not be empty.
Utf8Step next_utf8(std::string_view text);

/// Appends the UTF-8 of a code point, which must be a scalar value.
void append_utf8(char32_t code_point, std::string* out);

bool is_valid_utf8(std::string_view text);

/// The text with each maximal ill-formed subpart replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

/// The same repair for text that comes in pieces: what push() and finish() append is, concatenated,
/// replace_invalid_utf8() of all pieces, and every single append is well-formed.
class Utf8Stream {
 public:
  /// Appends to `out` all characters that are complete by now; holds back at most three bytes.
  void push(std::string_view bytes, std::string* out);
  /// Ends the text: a held-back half becomes U+FFFD. The stream can then be used anew.
  void finish(std::string* out);

 private:
  std::string held_;
};

}  // namespace moeflux
