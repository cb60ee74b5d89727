#include "io/page_cache.h"

#include <fcntl.h>
#include <unistd.h>

namespace moeflux {

int open_uncached(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd >= 0 && ::fcntl(fd, F_NOCACHE, 1) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// macOS offers nothing of the kind for a range; F_NOCACHE above is its way.
void drop_from_page_cache(int, uint64_t, uint64_t) {}

}  // namespace moeflux
