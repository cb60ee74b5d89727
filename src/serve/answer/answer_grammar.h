// The constraint of a request's answers, compiled.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <variant>

#include "chat/chat_format.h"
#include "chat/open_model.h"
#include "serve/request/chat_request.h"
#include "serve/wire/api_error.h"

namespace moeflux::serve {

/// Null: none. A constraint that cannot be enforced is refused with 400, never dropped in silence.
using AnswerConstraint = std::variant<std::shared_ptr<const Constraint>, ApiError>;

/// Its answers are held to something: compile_answer() takes longer than all else.
bool needs_compile(const ChatRequest& request);

/// For an answer in a conversation, behind a prompt that ends in `prompt_tail`: its content, the
/// calls that it has to hold, and the arguments of strict tools. `is_given_up` is asked between
/// tools: true ends it.
AnswerConstraint compile_answer(OpenModel& model, const ChatFormat& format,
                                std::string_view prompt_tail, const ChatRequest& request,
                                const std::function<bool()>& is_given_up);

/// For a text without a conversation.
AnswerConstraint compile_text(OpenModel& model, const OutputConstraint& constraint);

}  // namespace moeflux::serve
