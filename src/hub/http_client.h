// HTTP requests for a hub or a server of tools: several at once, on the caller's thread. Follows no
// redirect and tries nothing twice; the meaning of an answer is known above.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moeflux::hub {

struct HttpRange {
  uint64_t begin = 0;
  uint64_t end = 0;  // behind the last byte
};

struct HttpRequest {
  std::string url;
  std::string token = {};  // for "Authorization: Bearer"; empty: none
  std::optional<HttpRange> range = {};
  std::optional<std::string> body = {};   // sent by POST
  std::vector<std::string> headers = {};  // further ones, "Name: value"
  /// Told of each header of the answer, with its name as it came.
  std::function<void(std::string_view name, std::string_view value)> take_header = {};
  /// The body of an answer 200 or 206, `offset` in the whole file: of a server that gives another
  /// range than it was asked for nothing is taken. False ends the request.
  std::function<bool(uint64_t offset, std::span<const std::byte>)> take = {};
};

struct HttpAnswer {
  uint64_t id = 0;             // as start() gave it
  int status = 0;              // 0: no answer
  std::string redirect;        // absolute; empty without
  int64_t retry_seconds = 0;   // of Retry-After; 0 without
  std::string failure;         // of the transfer; empty: the answer came whole
  bool is_distrusted = false;  // the other side's certificate is not one that is trusted
};

struct HttpOptions {
  int stall_seconds = 30;  // without a byte, and to connect
  int connections = 8;
};

/// For one thread.
class HttpClient {
 public:
  /// Fails with kUnsupported in a build without libcurl.
  static Result<std::unique_ptr<HttpClient>> create(const HttpOptions& options);
  virtual ~HttpClient() = default;  // as cancel_all()
  virtual uint64_t start(HttpRequest request) = 0;
  /// The answers that have ended, perhaps none, after at most `wait_ms`.
  virtual std::vector<HttpAnswer> wait(int wait_ms) = 0;
  /// Ends what is not finished, without an answer.
  virtual void cancel_all() = 0;
};

}  // namespace moeflux::hub
