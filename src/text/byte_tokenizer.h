// The smallest tokenizer.json that encodes every text: one token for each byte, no merges.
#pragma once

#include <string>

namespace moeflux {

/// JSON of a byte-level BPE whose token b is the byte b.
std::string byte_tokenizer_json();

}  // namespace moeflux
