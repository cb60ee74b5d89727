#include "serve/http/half_close.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace moeflux::serve {

std::optional<HalfClose::Clock::time_point> HalfClose::next_probe() const {
  if (probes_ >= kProbesMax) return std::nullopt;
  return next_probe_;
}

void HalfClose::count_probe(Clock::time_point now) {
  ++probes_;
  wait_ *= 4;
  next_probe_ = now + wait_;
}

bool has_hung_up(int socket) {
  pollfd one{.fd = socket, .events = 0, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLERR | POLLHUP)) != 0;
}

void watch_peer(int socket) {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE  // elsewhere the system says how long
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
#endif
  set(IPPROTO_TCP, TCP_KEEPINTVL, 15);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace moeflux::serve
