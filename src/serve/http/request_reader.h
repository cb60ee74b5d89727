// Bytes of an HTTP/1.1 connection to Requests, within limits.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "serve/http/http_text.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

struct RequestLimits {
  size_t header_bytes = 32 * 1024;  // the first line included; also of a chunk's head and trailers
  size_t header_fields = 100;
  size_t body_bytes = 32 * 1024 * 1024;
};

/// Properties of the connection in the head of a request.
struct RequestMeta {
  int minor_version = 1;  // of HTTP/1.x
  bool keep_alive = true;
  bool has_body = false;
  bool expects_continue = false;
};

/// Reads one request. Stops behind its headers, so that a body is read only once somebody wants it.
class RequestReader {
 public:
  enum class State {
    kHeader,      // more bytes of the headers are needed
    kHeaderDone,  // request() has everything but the body; feed() on
    kBody,        // more bytes of the body are needed
    kDone,        // request() is whole
    kRefused,     // problem() says why; the connection has no further use
  };

  explicit RequestReader(const RequestLimits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  /// Takes bytes and says how many: the caller gives what is left again, in one piece with what
  /// follows, when there is more or the state is kHeaderDone.
  size_t feed(std::string_view bytes);

  State state() const;
  const Refusal& problem() const;
  /// The headers as far as they are known, and the body in state kDone. May be moved from then.
  /// HEAD and OPTIONS of "*" are what they came as.
  Request& request();
  const RequestMeta& meta() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace moeflux::serve
