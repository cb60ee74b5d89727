// The messages and tools of OpenAI's chat completions as templates take them: what older clients
// write in other words, what models here do not read.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "serve/request/fields.h"

namespace moeflux::serve {

/// Problems are left in `fields`, as below. function_call is a call, and a message of role function
/// its result; images, audio and files before the last question become a line of text, and an
/// assistant's refusal is its text.
Json read_chat_messages(Fields& fields);

/// {"type": "function", "function": {...}} for each tool that can be called, or null: also for
/// functions, and for a function without one around it. Types that are run elsewhere go to
/// `dropped`; where in the request the schemas of the others stand, to `sources`.
Json read_chat_tools(Fields& fields, std::vector<std::string>& dropped,
                     std::vector<std::string>& sources);

}  // namespace moeflux::serve
