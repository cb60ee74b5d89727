// Reading past the page cache: what differs between Linux and macOS.
#pragma once

#include <cstdint>
#include <string>

namespace moeflux {

/// A second descriptor of the file at `path` whose reads leave the page cache alone, or -1 where
/// the filesystem refuses.
int open_uncached(const std::string& path);

/// Asks the system to forget the cached pages of a range; no promise.
void drop_from_page_cache(int fd, uint64_t offset, uint64_t bytes);

}  // namespace moeflux
