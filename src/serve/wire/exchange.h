// A request and the way its answer goes out, without a word about sockets: an HTTP server, a C
// program and a Python server bring requests to a Service and carry its answers in this form.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moeflux::serve {

/// Names in lower case in requests; as they go out in answers.
using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // upper case
  std::string path;    // percent-decoded, without the query; begins with '/'
  std::string query;   // behind '?', as it came
  Headers headers;
  std::string body;
  /// The owner of the request, who sees only own stored objects. Empty where there are no keys.
  std::string owner = {};
  /// The clients that share KV states: the owner's, where there are several.
  std::string shares_with = {};
  /// It may see what concerns all clients: log, plan, options, routes.
  bool is_admin = true;
};

/// The value of the first header of that lower-case name; empty without one.
std::string_view header(const Request& request, std::string_view name);

/// Where an answer goes. Functions may be called from any thread, one at a time, and never block.
/// After the peer has gone they do nothing.
class Response {
 public:
  virtual ~Response() = default;

  /// The whole answer at once. Once, in place of begin().
  virtual void send(int status, Headers headers, std::string body) = 0;

  /// Begins an answer in pieces: write() any number of times, then end().
  virtual void begin(int status, Headers headers) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void end() = 0;
  /// Sends `bytes` by itself whenever nothing was sent for `interval`, until end(). After begin().
  virtual void keep_alive(std::string bytes, std::chrono::milliseconds interval) = 0;
  /// The same with bytes that are made anew each time, on a thread of the transport. One that
  /// cannot call repeats the first.
  virtual void break_silence(std::function<std::string()> bytes,
                             std::chrono::milliseconds interval) {
    keep_alive(bytes(), interval);
  }

  /// Bytes written that the peer has not taken yet.
  virtual size_t unsent_bytes() const = 0;
  /// Calls `drained` once, from a thread of the transport, when unsent_bytes() has fallen to
  /// `bytes` or less, or the peer has gone; at once where the peer has gone before and no thread
  /// of the transport is left to come. So ask without a lock that `drained` takes. Replaces what
  /// was asked before.
  virtual void when_drained(size_t bytes, std::function<void()> drained) = 0;
  /// Calls `closed` once, from a thread of the transport or at once, when the peer has gone before
  /// the answer has ended.
  virtual void when_closed(std::function<void()> closed) = 0;
  virtual bool is_closed() const = 0;
  /// Told before the end of each text that an answer has, for logs.
  virtual void count_tokens(int64_t /*prompt*/, int64_t /*generated*/) {}
  /// Why the answer was ended from outside, for those who still read it; empty: nobody said.
  virtual std::string close_reason() const { return {}; }
};

/// Answers a request, now or later, from any thread. Must not block for long: the transport waits.
using Handler = std::function<void(Request request, std::shared_ptr<Response> response)>;

}  // namespace moeflux::serve
