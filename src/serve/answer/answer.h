// An answer as interfaces are told it: piece by piece, and all of it at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "output/output_parser.h"
#include "schedule/text_request.h"

namespace moeflux::serve {

/// A token with what the model thought of it.
struct ScoredToken {
  TokenId token = 0;
  TokenLogprobs logprobs;
  bool has_score = true;  // the first of an echoed prompt has none
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON
  bool complete = false;
};

/// The news of a choice: one kind of text, and the scores of content's tokens.
struct AnswerDelta {
  size_t choice = 0;
  OutputKind kind = OutputKind::kContent;
  int call = -1;  // of a call's kinds
  std::string text;
  std::string id;                   // of kCallBegin
  bool complete = false;            // of kCallEnd: the arguments are whole
  std::vector<ScoredToken> scores;  // of kContent
};

/// All that was said in a choice.
struct AnswerPart {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  std::vector<ScoredToken> scores;
  std::vector<TokenId> tokens;  // as they were drawn, with one that ended the text
  int complete_calls = 0;
  int64_t reasoning_tokens = 0;
  std::string stopped_by;  // the request's stop string that ended it; empty: none did
  TextStatistics statistics;
};

}  // namespace moeflux::serve
