// Text formatting for messages: fmt behind one header, so that std::format can replace it.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/result.h"

namespace moeflux {

using fmt::format;

/// An Error with a formatted message.
template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return Error(code, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace moeflux
