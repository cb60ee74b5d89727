#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace moeflux {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, condition);
  std::abort();
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kCorruption:
      return "corruption";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kIo:
      return "i/o error";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kFailedPrecondition:
      return "failed precondition";
  }
  __builtin_unreachable();
}

std::string Error::to_string() const {
  return std::string(error_code_name(code_)) + ": " + message_;
}

}  // namespace moeflux
