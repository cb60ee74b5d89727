// A request for an answer in a conversation, whichever protocol it came in.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "chat/chat_format.h"
#include "constraint/output_constraint.h"
#include "output/tool_types.h"
#include "serve/api_error.h"
#include "serve/generation_fields.h"

namespace moeflux::serve {

/// Which calls an answer must or may hold. Strict tools say so themselves.
struct ToolRule {
  bool required = false;           // at least one
  std::vector<std::string> names;  // of these tools alone; empty: of any
};

struct ChatRequest {
  GenerationFields generation;
  TemplateRequest conversation;            // messages, tools that the model is shown, variables
  std::shared_ptr<const ToolTypes> tools;  // of all tools of the request
  bool one_call = false;                   // the answer ends behind its first call
  ToolRule tool_rule;
  OutputConstraint constraint;        // of the content
  int64_t reasoning_tokens_max = -1;  // negative: no limit
  int32_t top_logprobs = -1;          // negative: none
  /// Tools that were left out since nobody here can run them, by type.
  std::vector<std::string> dropped_tools = {};
};

/// What a protocol's decoder makes of a body.
using DecodedChat = std::variant<ChatRequest, ApiError>;

}  // namespace moeflux::serve
