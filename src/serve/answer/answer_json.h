// Parts of answers that several interfaces share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/answer/answer.h"
#include "text/tokenizer.h"

namespace moeflux::serve {

/// The common part of all frames of an answer.
struct AnswerIdentity {
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;                // of build and checkpoint
  uint64_t seed = 0;                      // of the first choice
  std::vector<std::string> ignored = {};  // names of the request that nobody reads
  std::string routes = {};                // where they are recorded; empty: they are not
};

/// Tokens as lists of scores show them.
class TokenSpelling {
 public:
  explicit TokenSpelling(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Well-formed: U+FFFD for a part of a character.
  std::string text(TokenId token) const { return tokenizer_.token_text(token); }
  /// In UTF-8, of which a token may be a part.
  int64_t characters(TokenId token) const;
  /// The bytes as a list of numbers.
  Json bytes(TokenId token) const;

 private:
  const Tokenizer& tokenizer_;
};

/// [{token, logprob, bytes, top_logprobs}]
Json scores_json(const std::vector<ScoredToken>& scores, const TokenSpelling& spelling);
/// Choices of one prompt follow each other and share it: it counts once.
Json usage_json(const std::vector<AnswerPart>& answers, size_t prompts = 1);
/// llama.cpp's.
Json timings_json(const TextStatistics& statistics);
/// Members that no other server has: the seed, what experts took from the drive, and which names of
/// the request were ignored, if any were.
Json moeflux_json(const AnswerIdentity& identity, const std::vector<AnswerPart>& answers);
/// llama.cpp's prompt_progress, with our place in the queue.
Json progress_json(const PromptProgress& progress);

/// A prefix and 24 letters or digits, new each time.
std::string make_id(std::string_view prefix);
int64_t unix_seconds();

/// The end of a stream of OpenAI's completions.
inline constexpr std::string_view kStreamDone = "data: [DONE]\n\n";

}  // namespace moeflux::serve
