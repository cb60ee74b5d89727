// OpenAI's chat completions: what a request's JSON asks for, and answers in its words. Fields and
// shapes are those of openai-python's types/chat, with llama.cpp's additions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "serve/answer.h"
#include "serve/api_error.h"
#include "serve/chat_request.h"
#include "serve/openai/common.h"

namespace moeflux::serve {

DecodedChat decode_chat_request(const Json& body, const RequestDefaults& defaults);

/// "stop", "length" or "tool_calls".
std::string finish_reason(const AnswerPart& answer);

/// The calls of a message, as clients send them back.
Json chat_calls(const std::vector<ToolCall>& calls);

/// The body of an answer that comes whole.
Json chat_completion(const AnswerIdentity& identity, const std::vector<AnswerPart>& answers,
                     const TokenSpelling& spelling, bool with_logprobs);

/// Frames of an answer that comes in pieces.
Json chat_first_chunk(const AnswerIdentity& identity, int64_t choice);
/// Null for an event that no client is told of.
Json chat_delta_chunk(const AnswerIdentity& identity, int64_t choice, const AnswerDelta& delta,
                      const TokenSpelling& spelling);
Json chat_last_chunk(const AnswerIdentity& identity, int64_t choice, const AnswerPart& answer);
Json chat_usage_chunk(const AnswerIdentity& identity, const std::vector<AnswerPart>& answers);
Json chat_progress_chunk(const AnswerIdentity& identity, int64_t choice,
                         const PromptProgress& progress);

}  // namespace moeflux::serve
