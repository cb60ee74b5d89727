// Text formatting for messages: fmt behind one header, so that std::format can replace it.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

#include "base/result.h"

namespace moeflux {

/// formatted("{} of {}", a, b). Its name is not `format`: std::format, which many standard headers
/// bring, would be as good a match for arguments of std.
template <typename... Args>
std::string formatted(fmt::format_string<Args...> text, Args&&... args) {
  return fmt::format(text, std::forward<Args>(args)...);
}

/// An Error with a formatted message.
template <typename... Args>
Error make_error(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  return Error(code, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace moeflux
