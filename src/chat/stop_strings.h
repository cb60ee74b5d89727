// Ends a streamed text before the first of some strings, wherever pieces begin and end.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

/// One stream of text; not thread-safe. Empty strings stop nothing.
class StopStrings {
 public:
  /// `included`: the string that ends the text is a part of it.
  explicit StopStrings(std::vector<std::string> strings, bool included = false);

  /// The text that is now known to come before any stop string. At most the longest string's
  /// length less one is held back, cut at the beginning of a character. After a stop: nothing.
  std::string push(std::string_view text);
  /// The same of text within which no stop string counts: one may begin in it, and end in what is
  /// pushed later.
  std::string push_exempt(std::string_view text);
  /// Ends the stream: what was held back.
  std::string finish();
  bool stopped() const { return stopped_; }
  /// The string that ended the text; empty while none has.
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  /// How much of the text is certain not to be of a string that may still come.
  size_t before_beginnings() const;
  std::string take(size_t certain);

  std::vector<std::string> strings_;
  const bool included_;
  std::string held_;
  size_t exempt_ = 0;  // of held_, its first bytes
  bool stopped_ = false;
  std::string stopped_by_;
};

}  // namespace moeflux
