// How much memory this process may use and has used: /proc, cgroups v1 and v2, sysctl on macOS.
#pragma once

#include <cstdint>

namespace moeflux {

struct HostMemory {
  /// The machine's memory, or the smallest cgroup limit that applies to us when that is less.
  uint64_t total_bytes = 0;
  /// Bytes that can be allocated without swapping: the least of the machine's available memory and
  /// the rest of every cgroup from ours up to the root (limit minus usage, reclaimable page cache
  /// counted as free).
  uint64_t available_bytes = 0;
};

/// Zeros where the system does not tell.
HostMemory query_host_memory();
/// The process's peak resident set since it was started.
uint64_t peak_resident_bytes();

}  // namespace moeflux
