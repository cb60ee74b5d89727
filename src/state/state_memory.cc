#include "state/state_memory.h"

#include <algorithm>
#include <utility>

namespace moeflux {

uint64_t StateMemory::near_left(Use use) const {
  if (!bounds_) return UINT64_MAX;
  uint64_t taken = near_bytes();
  if (use == Use::kPages && bounds_->kept_bytes > taken_->near_kept) {
    taken += bounds_->kept_bytes - taken_->near_kept;
  }
  return bounds_->near_bytes > taken ? bounds_->near_bytes - taken : 0;
}

Result<std::shared_ptr<Buffer>> StateMemory::allocate(uint64_t bytes, MemoryKind kind,
                                                      LayerId layer, uint64_t Taken::*counter) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory, device_.allocate_for(layer, bytes, kind));
  // Counted before there is a shared pointer: where that cannot be made, it gives back.
  (*taken_).*counter += bytes;
  return std::shared_ptr<Buffer>(memory.release(), [taken = taken_, counter, bytes](Buffer* old) {
    (*taken).*counter -= bytes;
    delete old;
  });
}

Result<StateMemory::Blocks> StateMemory::take(uint64_t bytes, size_t count, Use use,
                                              LayerId layer) {
  const uint64_t room = bytes == 0 ? count : near_left(use) / bytes;
  if (const auto near = static_cast<size_t>(std::min<uint64_t>(count, room)); near > 0) {
    auto buffer = allocate(near * bytes, MemoryKind::kDevice, layer,
                           use == Use::kPages ? &Taken::near_pages : &Taken::near_kept);
    if (buffer.ok()) return Blocks{std::move(buffer).value(), near};
    // Others may have taken the device's memory since it was counted.
    if (!bounds_ || buffer.error().code() != ErrorCode::kResourceExhausted) return buffer.error();
  }
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                      allocate(count * bytes, MemoryKind::kHostVisible, layer, &Taken::far));
  return Blocks{std::move(buffer), count};
}

}  // namespace moeflux
