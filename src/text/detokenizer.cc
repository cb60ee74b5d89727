// The work is Utf8Stream's; here tokens become bytes.
#include "text/detokenizer.h"

namespace moeflux {

std::string Detokenizer::push(TokenId id) {
  std::string text;
  stream_.push(tokenizer_->decode_next(id, options_, &state_), &text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  stream_.finish(&text);
  state_ = {};
  return text;
}

}  // namespace moeflux
