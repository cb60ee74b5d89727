// Ends a text before the first line that is indented by less than it should be, as llama.cpp's
// `n_indent` does: a gap in a block is filled up to the block's end.
#pragma once

#include <cstdint>
#include <string>

namespace moeflux::serve {

/// One stream of text; not thread-safe.
class LeastIndent {
 public:
  /// `columns`: spaces and tabs that every line but the first begins with; 0 ends nothing.
  explicit LeastIndent(int64_t columns) : columns_(columns) {}

  /// The part of `text` before the end. A line that ends the text keeps its white space.
  std::string push(std::string text);
  bool stopped() const { return stopped_; }

 private:
  const int64_t columns_;
  int64_t found_ = -1;  // of the line that has begun; negative: behind its indentation
  bool stopped_ = false;
};

}  // namespace moeflux::serve
