// Carries requests of HTTP/1.1 clients to a Handler and its answers back. The meaning of a request
// is the handler's business.
//
// One thread serves all sockets. Others call the handler, in three lanes: what is answered at once,
// short bodies, and long ones; so a long request stops nobody else's, and none stops /health. The
// answers of a client that has gone are dropped and their when_closed() callbacks run. One that
// only ends what it sends gets its answer, see half_close.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serve/http/access.h"
#include "serve/http/handler_lanes.h"
#include "serve/http/request_reader.h"
#include "serve/wire/exchange.h"

namespace moeflux::serve {

struct HttpLimits {
  RequestLimits request;
  int connections = 1024;  // further ones are told 503
  /// Room for bodies that are being read or wait for the handler; who exceeds it is told 503.
  size_t bodies_bytes = size_t{256} << 20;
  /// From a connection's begin or a request's first byte to the end of its headers.
  std::chrono::milliseconds header_time{10'000};
  /// From the headers' end to the body's; in each window it has to bring its share.
  std::chrono::milliseconds body_time{60'000};
  std::chrono::milliseconds body_window{10'000};
  size_t body_bytes_per_second = 1024;
  std::chrono::milliseconds keep_alive_time{75'000};  // without a request
  std::chrono::milliseconds write_time{30'000};       // in which the peer takes nothing
  /// From the end of what a client sends to the first interim answer that asks whether it is there.
  std::chrono::milliseconds probe_time{1'000};
  /// How long what still comes is read after the last answer of a connection, so that the peer
  /// reads the answer before it hears that nobody listens.
  std::chrono::milliseconds linger_time{2'000};
  /// How long no connection is accepted after the system had no descriptor or memory for one.
  std::chrono::milliseconds accept_pause{100};
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address or a name
  uint16_t port = 8080;            // 0: any that is free
  /// A path: listens there instead of at host and port. The file is removed at the end.
  std::string unix_socket;
  AccessRules access;
  HttpLimits limits;
  /// Tells which requests the handler answers from memory, without computing; null: none. They wait
  /// for none of the others.
  std::function<bool(const Request& request)> is_at_once = {};
  /// Called for each request that is answered and never reaches the handler: refused for `reason`,
  /// or with an empty one a browser's OPTIONS. A request that could not be read has no method. On
  /// the server's thread, which waits.
  std::function<void(const Request& request, int status, std::string_view reason)> on_own_answer =
      {};
  /// Listens beyond the loopback interface although nobody needs a key (--allow-public).
  bool allow_public_without_key = false;
};

struct HttpStatistics {
  uint64_t connections = 0;  // open now
  uint64_t accepted = 0;
  uint64_t refused = 0;          // told 503 or closed, for being too many
  uint64_t accept_pauses = 0;    // times that the system had no descriptor or memory for one
  uint64_t dropped_answers = 0;  // begun or awaited when the peer went, or given up by the handler
  std::map<int, uint64_t> answers;  // sent to their end, by status
};

/// Thread-safe.
class HttpServer {
 public:
  /// Listens when it returns. Fails with kInvalidArgument for an address that is none, kIo where
  /// the system does not let it listen, kFailedPrecondition for a public address without a key,
  /// kUnsupported in a build without Boost. `handler` is called from five threads: one for what is
  /// at once, two for bodies up to kShortBodyBytes, two for longer ones.
  static Result<std::unique_ptr<HttpServer>> start(HttpServerOptions options, Handler handler);

  /// Closes what is open, as stop() without grace. Returns when no handler runs any more; Responses
  /// may outlive the server, as closed ones.
  virtual ~HttpServer() = default;

  /// Where it listens; 0 for a socket of a path.
  virtual uint16_t port() const = 0;
  /// "http://127.0.0.1:8080" or "unix:PATH", for people.
  virtual std::string address() const = 0;
  /// From now on connections that ask nothing are closed, and all others after their answer. New
  /// ones are still accepted: the handler may tell them that it ends.
  virtual void drain() = 0;
  /// After drain(). Returns when all who had asked before it have their answers, or `grace` is
  /// over: `unanswered`, where no byte of any answer that is left is there.
  virtual void wait_for_answers(std::chrono::milliseconds grace,
                                std::chrono::milliseconds unanswered) = 0;
  /// Accepts nobody any more, lets what was asked be answered for `grace`, then closes the rest.
  /// Returns when no connection is left. Not from a handler or a callback of a Response.
  virtual void stop(std::chrono::milliseconds grace) = 0;
  virtual HttpStatistics statistics() const = 0;
  /// A call of the handler has not returned.
  virtual bool is_handling() const = 0;
};

}  // namespace moeflux::serve
