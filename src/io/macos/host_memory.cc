// Host memory of the running macOS system.
#include "io/host_memory.h"

#include <mach/mach.h>
#include <sys/resource.h>
#include <sys/sysctl.h>

#include <algorithm>

namespace moeflux {

HostMemory query_host_memory() {
  HostMemory memory;
  size_t size = sizeof(memory.total_bytes);
  if (::sysctlbyname("hw.memsize", &memory.total_bytes, &size, nullptr, 0) != 0) return {};
  const mach_port_t host = ::mach_host_self();
  vm_statistics64_data_t statistics = {};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  vm_size_t page_bytes = 0;
  const bool known =
      ::host_page_size(host, &page_bytes) == KERN_SUCCESS &&
      ::host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&statistics),
                          &count) == KERN_SUCCESS;
  ::mach_port_deallocate(::mach_task_self(), host);
  if (!known) return memory;
  // Free counts speculative pages already; purgeable and file-backed inactive pages go without
  // being swapped. Inactive anonymous pages would be compressed, so external pages bound them.
  const uint64_t file_backed =
      std::min<uint64_t>(statistics.inactive_count, statistics.external_page_count);
  const uint64_t pages = uint64_t{statistics.free_count} + statistics.purgeable_count + file_backed;
  memory.available_bytes = std::min<uint64_t>(pages * page_bytes, memory.total_bytes);
  return memory;
}

uint64_t peak_resident_bytes() {
  struct rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return static_cast<uint64_t>(usage.ru_maxrss);  // bytes here, KiB on Linux
}

}  // namespace moeflux
