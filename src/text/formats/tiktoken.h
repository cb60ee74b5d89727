// Tokenizers that come as a tiktoken.model instead of a tokenizer.json: those of the Kimi family.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/tokenizer.h"

namespace moeflux {

/// Ids above the ranks that always are added tokens, whether or not the configuration names them.
constexpr int32_t kTiktokenReservedCount = 256;

/// Builds the tokenizer from the bytes of tiktoken.model and tokenizer_config.json; `what` names
/// the former in messages.
///
/// Text is cut by Kimi's pattern. A piece that is a token becomes it; of others, neighbours whose
/// bytes together are a token merge, the lowest rank first. The 256 ids after the ranks are added
/// tokens: those in added_tokens_decoder by their content, the rest as "<|reserved_token_ID|>".
/// They match literally, the longest first; lstrip, rstrip, single_word and normalized are not
/// heeded, as tiktoken knows none of them. Tokens of the configuration without "special" are
/// matched as well but stay when decoding skips special tokens. No BOS is ever added.
///
/// Fails with kCorruption, naming the line or the token, for files that contradict themselves; see
/// parse_tiktoken_ranks for the table. 160,000 tokens take some tenths of a second.
Result<Tokenizer> parse_tiktoken(std::string_view ranks_file,
                                 std::string_view tokenizer_config_json, std::string_view what);

}  // namespace moeflux
