// The grammar of a whole answer in a conversation: its reasoning is free, its content and its calls
// are what a request asks for.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "constraint/output_constraint.h"
#include "grammar/call_grammar.h"
#include "output/output_format.h"
#include "text/tokenizer.h"

namespace moeflux {

struct AnswerRule {
  OutputConstraint content = {};  // kNone: any text
  std::vector<CallableTool> tools = {};
  bool calls_required = false;  // there is a call, and no content
  bool one_call = false;        // no second call follows the first
  /// The answer may open reasoning before what it is held to (ChatFormat::may_reason()). Where the
  /// prompt has opened it, it is closed first whatever this says.
  bool may_reason = true;
};

/// The grammar of an answer behind a prompt that ends in `prompt_tail` (ChatPrompt::tail). It
/// begins with the answer, in reasoning where the prompt does. Without tools and with any content,
/// there is nothing to hold it to: the caller sees to that. Fails as call_rule() does.
Result<OutputConstraint> answer_grammar(const OutputFormat& format, const Tokenizer& tokenizer,
                                        std::string_view prompt_tail, const AnswerRule& rule);

}  // namespace moeflux
