#include "io/page_cache.h"

#include <fcntl.h>

#include "base/units.h"
#include "io/async_reader.h"

namespace moeflux {

int open_uncached(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
}

void drop_from_page_cache(int fd, uint64_t offset, uint64_t bytes) {
  // Only whole pages are dropped, so the range grows to whole pages.
  const uint64_t begin = offset / kDirectAlignment * kDirectAlignment;
  const uint64_t end = round_up(offset + bytes, kDirectAlignment);
  (void)::posix_fadvise(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                        POSIX_FADV_DONTNEED);
}

}  // namespace moeflux
