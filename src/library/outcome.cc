#include "library/outcome.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

mf_code code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return MF_ERROR_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return MF_ERROR_NOT_FOUND;
    case ErrorCode::kCorruption:
      return MF_ERROR_CORRUPTION;
    case ErrorCode::kUnsupported:
      return MF_ERROR_UNSUPPORTED;
    case ErrorCode::kResourceExhausted:
      return MF_ERROR_RESOURCE_EXHAUSTED;
    case ErrorCode::kIo:
      return MF_ERROR_IO;
    case ErrorCode::kCancelled:
      return MF_ERROR_CANCELLED;
    case ErrorCode::kFailedPrecondition:
      return MF_ERROR_FAILED_PRECONDITION;
  }
  __builtin_unreachable();
}

}  // namespace

Outcome::Outcome(Status status) {
  if (!status.ok()) *this = Outcome(status.error());
}

Outcome::Outcome(const Error& error) : code(code_of(error.code())), message(error.message()) {}

mf_code report(mf_code code, const char* message, mf_error* error) noexcept {
  if (error == nullptr) return code;
  constexpr std::string_view kReplacement = "\uFFFD";
  error->code = code;
  // Paths and names that callers and files gave are any bytes.
  size_t size = 0;
  for (std::string_view rest = message; !rest.empty();) {
    const Utf8Step step = next_utf8(rest);
    std::string_view character = rest.substr(0, step.bytes_count);
    if (step.kind != Utf8Kind::kCharacter) {
      character = kReplacement;
    } else if (step.code_point < 0x20 || step.code_point == 0x7F) {
      character = " ";
    }
    if (size + character.size() >= sizeof(error->message)) break;
    std::memcpy(error->message + size, character.data(), character.size());
    size += character.size();
    rest.remove_prefix(step.bytes_count);
  }
  error->message[size] = '\0';
  return code;
}

mf_code report(const Outcome& outcome, mf_error* error) noexcept {
  return report(outcome.code, outcome.message.c_str(), error);
}

mf_code report_exception(const std::exception& exception, mf_error* error) noexcept {
  std::array<char, sizeof(mf_error::message)> message;
  std::snprintf(message.data(), message.size(),
                "an exception left the call, probably a callback's: %s", exception.what());
  return report(MF_ERROR_CANCELLED, message.data(), error);
}

Error null_argument(const char* name) {
  return make_error(ErrorCode::kInvalidArgument, "{} is null", name);
}

Outcome busy(int64_t timeout_ms) {
  std::string message = "another call of this model is running; one at a time may compute";
  if (timeout_ms > 0) message += formatted(" (waited at most {} ms)", timeout_ms);
  return {MF_ERROR_BUSY, std::move(message)};
}

Outcome cancelled_waiting() {
  return {MF_ERROR_CANCELLED, "cancelled while it waited for its turn"};
}

Outcome fit(const char* what, size_t count, size_t capacity, size_t* stored) {
  *stored = count;
  if (count <= capacity) return {};
  return {MF_ERROR_BUFFER_TOO_SMALL,
          formatted("{} {} do not fit a buffer of {}", count, what, capacity)};
}

Outcome copy_tokens(std::span<const TokenId> from, int32_t* tokens, size_t capacity,
                    size_t* count) {
  if (count == nullptr) return null_argument("count");
  if (tokens == nullptr && capacity > 0) return null_argument("tokens");
  std::copy_n(from.begin(), std::min(capacity, from.size()), tokens);
  return fit("tokens", from.size(), capacity, count);
}

}  // namespace moeflux
