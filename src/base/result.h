// Result<T> and Status: how the outside world's failures travel. Our own bugs abort (check.h)
// instead. An Error names what failed, what was found and what was expected, in one line fit for a
// terminal.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace moeflux {

enum class ErrorCode {
  kInvalidArgument,    // a flag, request or config value that cannot be right
  kNotFound,           // a file, tensor, family or device that is not there
  kCorruption,         // bytes that contradict their own format
  kUnsupported,        // well-formed, but nobody wrote the code for it
  kResourceExhausted,  // memory, context or cache too small
  kIo,                 // the operating system failed a read or a write
  kCancelled,          // the caller asked us to stop
  kFailedPrecondition  // an object is in a state that forbids the call
};

std::string_view error_code_name(ErrorCode code);

class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  /// "corruption: tensor x ends past the file".
  std::string to_string() const;
  /// The same error seen from one level up: "model.safetensors: tensor x ends past the file".
  Error with_context(std::string_view context) const {
    return Error(code_, std::string(context) + ": " + message_);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

/// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    MF_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    MF_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    MF_CHECK(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    MF_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

/// Success or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}  // NOLINT: by design

  bool ok() const { return error_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    MF_CHECK(!ok());
    return *std::get_if<1>(&error_);
  }

 private:
  std::variant<std::monostate, Error> error_;
};

}  // namespace moeflux

#define MF_CONCAT_INNER(a, b) a##b
#define MF_CONCAT(a, b) MF_CONCAT_INNER(a, b)

/// Leaves the function with the error when a Status or Result expression failed.
#define MF_RETURN_IF_ERROR(expression)                    \
  do {                                                    \
    if (auto mf_status = (expression); !mf_status.ok()) { \
      return mf_status.error();                           \
    }                                                     \
  } while (false)

/// `MF_ASSIGN_OR_RETURN(File file, File::open(path));`
#define MF_ASSIGN_OR_RETURN(declaration, expression) \
  MF_ASSIGN_OR_RETURN_INNER(MF_CONCAT(mf_result_, __LINE__), declaration, expression)
#define MF_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.ok()) return result.error();                         \
  declaration = std::move(result).value()
