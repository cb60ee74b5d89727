// The table of a tiktoken.model: a line for each token, base64 of its bytes, a space, its rank.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/vocabulary/vocabulary.h"

namespace moeflux {

/// Tokens of more bytes are refused. Tokens in use have some hundred bytes at most; looking for a
/// token's halves is quadratic in its length.
constexpr size_t kTiktokenBytesMax = 1024;

/// The tokens by rank. Lines may come in any order; empty ones are skipped. Fails naming the line
/// with kCorruption for what is not such a line, and for bytes or ranks that come twice or ranks
/// that leave gaps; also when a single byte is no token. Fails with kUnsupported for tokens that
/// are too long and kResourceExhausted for too many of them.
Result<Vocabulary> parse_tiktoken_ranks(std::string_view text);

}  // namespace moeflux
