// The work is Utf8Stream's; here tokens become bytes.
#include "text/detokenizer.h"

namespace moeflux {

std::string Detokenizer::push(TokenId id) {
  std::string text;
  if (options_.skip_special && tokenizer_->is_special(id)) return text;
  stream_.push(tokenizer_->token_bytes(id), &text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text;
  stream_.finish(&text);
  return text;
}

}  // namespace moeflux
