#include "state/state_memory.h"

#include <algorithm>
#include <utility>

namespace moeflux {

uint64_t StateMemory::near_bytes_max() const {
  uint64_t bytes = 0;
  for (const Bounds& part : bounds_) bytes += part.near_bytes;
  return bytes;
}

uint64_t StateMemory::near_bytes() const {
  uint64_t bytes = 0;
  for (const Taken& part : *taken_) bytes += part.near_kept + part.near_pages;
  return bytes;
}

uint64_t StateMemory::far_bytes() const {
  uint64_t bytes = 0;
  for (const Taken& part : *taken_) bytes += part.far;
  return bytes;
}

uint64_t StateMemory::near_left(Use use, size_t part) const {
  if (bounds_.empty()) return UINT64_MAX;
  const Bounds& bounds = bounds_[part];
  const Taken& taken = (*taken_)[part];
  uint64_t bytes = taken.near_kept + taken.near_pages;
  if (use == Use::kPages && bounds.kept_bytes > taken.near_kept) {
    bytes += bounds.kept_bytes - taken.near_kept;
  }
  return bounds.near_bytes > bytes ? bounds.near_bytes - bytes : 0;
}

Result<std::shared_ptr<Buffer>> StateMemory::allocate(uint64_t bytes, MemoryKind kind,
                                                      LayerId layer, uint64_t Taken::*counter) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory, device_.allocate_for(layer, bytes, kind));
  // Counted before there is a shared pointer: where that cannot be made, it gives back.
  const size_t part = device_.part_of(layer);
  (*taken_)[part].*counter += bytes;
  return std::shared_ptr<Buffer>(memory.release(),
                                 [taken = taken_, part, counter, bytes](Buffer* old) {
                                   (*taken)[part].*counter -= bytes;
                                   delete old;
                                 });
}

Result<StateMemory::Blocks> StateMemory::take(uint64_t bytes, size_t count, Use use,
                                              LayerId layer) {
  const uint64_t room = bytes == 0 ? count : near_left(use, device_.part_of(layer)) / bytes;
  if (const auto near = static_cast<size_t>(std::min<uint64_t>(count, room)); near > 0) {
    auto buffer = allocate(near * bytes, MemoryKind::kDevice, layer,
                           use == Use::kPages ? &Taken::near_pages : &Taken::near_kept);
    if (buffer.ok()) return Blocks{std::move(buffer).value(), near};
    // Others may have taken the device's memory since it was counted.
    if (bounds_.empty() || buffer.error().code() != ErrorCode::kResourceExhausted)
      return buffer.error();
  }
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                      allocate(count * bytes, MemoryKind::kHostVisible, layer, &Taken::far));
  return Blocks{std::move(buffer), count};
}

}  // namespace moeflux
