// Token ids to text as they are generated: only complete characters come out.
#pragma once

#include <string>

#include "base/ids.h"
#include "text/encoding/utf8.h"
#include "text/tokenizer.h"

namespace moeflux {

/// One stream of tokens; not thread-safe. The tokenizer must outlive it. All pieces together are
/// exactly Tokenizer::decode() of all ids.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, DecodeOptions options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  /// The text that is complete with this token: well-formed UTF-8, maybe empty. At most three bytes
  /// are held back. Ids that nobody defined are nothing.
  std::string push(TokenId id);

  /// Ends the stream: a dangling half of a character becomes U+FFFD. The next push() begins anew.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  DecodeState state_;
  Utf8Stream stream_;
};

}  // namespace moeflux
