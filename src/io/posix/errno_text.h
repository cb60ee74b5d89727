// Errors of system calls: "PATH: cannot VERB: TEXT".
#pragma once

#include <cerrno>
#include <string_view>
#include <system_error>

#include "base/format.h"

namespace moeflux {

/// kNotFound for a missing path, kIo for everything else. `number` is errno, read right after the
/// failed call.
inline Error errno_error(int number, std::string_view path, std::string_view what) {
  const ErrorCode code =
      number == ENOENT || number == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo;
  return make_error(code, "{}: {}: {}", path, what, std::system_category().message(number));
}

}  // namespace moeflux
