// What a request's answers are held to, compiled.
#pragma once

#include <memory>
#include <string_view>
#include <variant>

#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "serve/api_error.h"
#include "serve/chat_request.h"

namespace moeflux::serve {

/// Null: to nothing. What cannot be is answered with 400: nothing is let go of in silence.
using AnswerConstraint = std::variant<std::shared_ptr<const Constraint>, ApiError>;

/// For an answer in a conversation, behind a prompt that ends in `prompt_tail`: its content, the
/// calls that it has to hold, and the arguments of strict tools.
AnswerConstraint compile_answer(OpenModel& model, const ChatFormat& format,
                                std::string_view prompt_tail, const ChatRequest& request);

/// For a text without a conversation.
AnswerConstraint compile_text(OpenModel& model, const OutputConstraint& constraint);

}  // namespace moeflux::serve
