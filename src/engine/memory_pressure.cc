#include "engine/memory_pressure.h"

namespace moeflux {

uint64_t MemoryPressure::bytes_to_release(Clock::time_point now) {
  if (!read_ || now < next_look_) return 0;
  next_look_ = now + options_.interval;
  const HostMemory memory = read_();
  if (memory.total_bytes == 0 || memory.available_bytes >= options_.low_bytes) return 0;
  return options_.high_bytes - memory.available_bytes;
}

}  // namespace moeflux
