// Host memory of the running Linux system.
#include "io/host_memory.h"

#include <sys/resource.h>

#include "base/units.h"
#include "io/linux_memory.h"

namespace moeflux {

HostMemory query_host_memory() { return query_linux_memory(""); }

uint64_t peak_resident_bytes() {
  // getrusage keeps the peak across exec: a process started by a large parent would report the
  // parent's. VmHWM belongs to the address space and starts anew.
  const uint64_t bytes = linux_peak_resident_bytes("");
  if (bytes != 0) return bytes;
  struct rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
}

}  // namespace moeflux
