// A peer that has ended what it sends: RFC 9112 lets it wait for its answer, and one that has
// closed its socket looks the same.
//
// The answer to further bytes tells them apart: a closed socket resets the connection. A stream has
// such bytes. Before an answer that comes whole or begins late an interim one goes out, "100
// Continue", which clients of HTTP/1.1 have to skip (RFC 9110, 15.2). To HTTP/1.0 nothing may be
// sent: TCP's keep-alive is what is left, which systems answer for a closed socket too, in their
// first minute (Linux keeps FIN_WAIT2 for tcp_fin_timeout, 60 s).
//
// nginx, Go's net/http (golang/go 18527) and cpp-httplib take the end of input for the end of the
// client; RFC 9112 does not. Knows clocks and descriptors.
#pragma once

#include <chrono>
#include <optional>

namespace moeflux::serve {

class HalfClose {
 public:
  using Clock = std::chrono::steady_clock;

  HalfClose(std::chrono::milliseconds first, Clock::time_point now)
      : wait_(first), next_probe_(now + first) {}

  /// When to send bytes that a closed socket answers with a reset; nothing once it was often
  /// enough.
  std::optional<Clock::time_point> next_probe() const;
  void count_probe(Clock::time_point now);

 private:
  // A proxy between may take the first and hear of its client's end by that. Go's clients take
  // five.
  static constexpr int kProbesMax = 4;

  std::chrono::milliseconds wait_;
  Clock::time_point next_probe_;
  int probes_ = 0;
};

/// Whether the peer of a socket has reset the connection, or closed its end of a socket of a path.
bool has_hung_up(int socket);

/// Lets the system ask a peer over TCP that was silent for a quarter of a minute if it is there.
void watch_peer(int socket);

}  // namespace moeflux::serve
