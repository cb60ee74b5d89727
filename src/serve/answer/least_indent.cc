#include "serve/answer/least_indent.h"

namespace moeflux::serve {

std::string LeastIndent::push(std::string text) {
  if (stopped_) return {};
  if (columns_ == 0) return text;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (found_ >= 0 && (c == ' ' || c == '\t')) {
      ++found_;
      continue;
    }
    if (found_ >= 0 && found_ < columns_) {
      stopped_ = true;
      text.resize(i);
      break;
    }
    found_ = c == '\n' ? 0 : -1;
  }
  return text;
}

}  // namespace moeflux::serve
