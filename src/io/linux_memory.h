// Linux' figures about memory from /proc and the cgroup folders. Only parses files, so that tests
// can offer made-up trees.
#pragma once

#include <string>

#include "io/host_memory.h"

namespace moeflux {

/// As query_host_memory(), with every absolute path read below `root` ("" for the real system).
/// Missing or unreadable files say nothing; missing /proc/meminfo gives zeros.
HostMemory query_linux_memory(const std::string& root);

/// VmHWM of /proc/self/status below `root`; 0 when it is not there.
uint64_t linux_peak_resident_bytes(const std::string& root);

}  // namespace moeflux
