#include "cli/quick_notes.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/format.h"

namespace moeflux {
namespace {

// Bytes that a ready pipe takes without waiting: PIPE_BUF of Linux, more than POSIX promises. A
// terminal that is stopped is not ready.
constexpr size_t kBytesMax = 4096;

}  // namespace

void QuickNotes::add(std::string_view line) {
  const std::lock_guard lock(mutex_);
  pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) {
    ++left_out_;
    return;
  }
  std::string said(line);
  // Words of clients do not break the line or steer the terminal.
  std::replace_if(
      said.begin(), said.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  const bool is_terminal = ::isatty(fd_) == 1;
  std::string text =
      left_out_ == 0 ? "" : formatted("({} lines were left out: nobody read them)\n", left_out_);
  const size_t room = kBytesMax - text.size() - 16;
  text += formatted("{}{}{}\n", is_terminal ? "\x1b[2m" : "", said.substr(0, room),
                    is_terminal ? "\x1b[0m" : "");
  if (::write(fd_, text.data(), text.size()) < 0) {
    ++left_out_;
  } else {
    left_out_ = 0;
  }
}

}  // namespace moeflux
