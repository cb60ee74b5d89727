#include "io/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

namespace moeflux {

void occupy_closed_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    // The lowest free number is this one. Without the other direction reads and writes fail.
    ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace moeflux
