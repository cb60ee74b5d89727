// One answer as it is generated: what of it is reasoning, content and tool calls, and where it ends
// because of a stop string, a call too many or reasoning that goes on for too long.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "chat/chat_format.h"
#include "chat/continuation.h"
#include "chat/stop_strings.h"
#include "output/output_parser.h"

namespace moeflux {

struct AnswerOptions {
  std::string prompt_tail;                     // ChatPrompt::tail
  std::shared_ptr<const ToolTypes> tools;      // or null
  std::vector<std::string> stop_strings = {};  // end the answer before them; of content alone
  bool includes_stop = false;                  // that string is a part of the content
  int64_t tokens_min = 0;                      // none ends it that these have completed
  int64_t reasoning_tokens_max = -1;           // then reasoning is closed; negative: no limit
  bool one_call = false;                       // the answer ends behind its first call
  uint64_t id_seed = 0;                        // of ids of calls
};

/// One answer; not thread-safe. The format must outlive it.
class AnswerReader {
 public:
  AnswerReader(const ChatFormat& format, AnswerOptions options);

  /// The reader's verdict after a token.
  struct Next {
    bool stop = false;
    std::vector<TokenId> forced = {};  // tokens that have to follow
  };
  /// Appends the events that are certain with this token. `text` is what the token completed.
  Next push(TokenId token, std::string_view text, std::vector<OutputEvent>& events);
  /// The token that ended the text: a marker of the format closes what is open.
  void push_stop_token(TokenId token, std::vector<OutputEvent>& events);
  /// Ends the answer: what was held back. Once.
  void finish(std::vector<OutputEvent>& events, FinishReason reason);

  bool stopped() const { return stop_.stopped(); }
  const std::string& stopped_by() const { return stop_.stopped_by(); }
  int complete_calls() const { return parser_.complete_calls(); }
  int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void filter(std::vector<OutputEvent>& parsed, std::vector<OutputEvent>& events);
  /// Gives what stop strings held back.
  void release(std::vector<OutputEvent>& events);

  const ChatFormat& format_;
  AnswerOptions options_;
  OutputParser parser_;
  StopStrings stop_;
  int64_t tokens_ = 0;
  int64_t reasoning_tokens_ = 0;
  bool closed_reasoning_ = false;
  uint64_t held_bytes_ = 0;  // of content, by stop strings
  uint64_t held_end_ = 0;    // where these end in what was generated
};

}  // namespace moeflux
