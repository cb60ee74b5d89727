#include "state/state_memory.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "base/units.h"

namespace moeflux {
namespace {

// The states of two copies of Qwen3.5-35B, and not much beside what a plan leaves to the system.
constexpr uint64_t kSpareBytesMax = 128 * kMiB;

}  // namespace

uint64_t StateMemory::near_bytes_max() const {
  uint64_t bytes = 0;
  for (const Bounds& part : bounds_) bytes += part.near_bytes;
  return bytes;
}

uint64_t StateMemory::near_bytes() const {
  uint64_t bytes = 0;
  for (const Taken& part : shared_->taken) bytes += part.near_kept + part.near_pages;
  return bytes;
}

uint64_t StateMemory::far_bytes() const {
  uint64_t bytes = 0;
  for (const Taken& part : shared_->taken) bytes += part.far;
  return bytes;
}

uint64_t StateMemory::near_left(Use use, size_t part) const {
  if (bounds_.empty()) return UINT64_MAX;
  const Bounds& bounds = bounds_[part];
  const Taken& taken = shared_->taken[part];
  const uint64_t kept = taken.near_kept + taken.spare;
  uint64_t bytes = kept + taken.near_pages;
  if (use == Use::kPages && bounds.kept_bytes > kept) bytes += bounds.kept_bytes - kept;
  return bounds.near_bytes > bytes ? bounds.near_bytes - bytes : 0;
}

// A buffer for which there is no room goes to the system.
void StateMemory::Shared::keep(std::unique_ptr<Buffer> buffer, LayerId layer, Taken& part) {
  const uint64_t bytes = buffer->size_bytes();
  if (part.spare + bytes > kSpareBytesMax) return;
  try {
    spares.emplace_back(layer, std::move(buffer));
    part.spare += bytes;
  } catch (const std::bad_alloc&) {
    return;
  }
}

void StateMemory::Shared::drop_spares(const Device& device, size_t part) {
  std::erase_if(spares, [&](const auto& spare) { return device.part_of(spare.first) == part; });
  taken[part].spare = 0;
}

// Counted before there is a shared pointer: where that cannot be made, it gives back.
std::shared_ptr<Buffer> StateMemory::counted(std::unique_ptr<Buffer> memory, LayerId layer,
                                             uint64_t Taken::*counter, bool is_block) {
  const size_t part = device_.part_of(layer);
  const uint64_t bytes = memory->size_bytes();
  shared_->taken[part].*counter += bytes;
  const auto give_back = [shared = shared_, part, layer, counter, bytes, is_block](Buffer* old) {
    std::unique_ptr<Buffer> buffer(old);
    shared->taken[part].*counter -= bytes;
    const bool is_near = counter != &Taken::far;
    if (is_block && is_near) shared->keep(std::move(buffer), layer, shared->taken[part]);
  };
  return std::shared_ptr<Buffer>(memory.release(), give_back);
}

Result<std::shared_ptr<Buffer>> StateMemory::allocate(uint64_t bytes, MemoryKind kind,
                                                      LayerId layer, uint64_t Taken::*counter,
                                                      size_t count) {
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory,
                      device_.allocate_for(layer, count * bytes, kind));
  return counted(std::move(memory), layer, counter, count == 1);
}

std::shared_ptr<Buffer> StateMemory::take_spare(uint64_t bytes, LayerId layer) {
  auto& spares = shared_->spares;
  const auto found = std::find_if(spares.rbegin(), spares.rend(), [&](const auto& spare) {
    return spare.first == layer && spare.second->size_bytes() == bytes;
  });
  if (found == spares.rend()) return nullptr;
  std::unique_ptr<Buffer> memory = std::move(found->second);
  spares.erase(std::next(found).base());
  shared_->taken[device_.part_of(layer)].spare -= bytes;
  return counted(std::move(memory), layer, &Taken::near_kept, true);
}

Result<StateMemory::Blocks> StateMemory::take(uint64_t bytes, size_t count, Use use,
                                              LayerId layer) {
  const size_t part = device_.part_of(layer);
  const auto room_for = [&] { return bytes == 0 ? count : near_left(use, part) / bytes; };
  if (room_for() < count) shared_->drop_spares(device_, part);
  const uint64_t room = room_for();
  if (const auto near = static_cast<size_t>(std::min<uint64_t>(count, room)); near > 0) {
    auto buffer = allocate(bytes, MemoryKind::kDevice, layer,
                           use == Use::kPages ? &Taken::near_pages : &Taken::near_kept, near);
    if (buffer.ok()) return Blocks{std::move(buffer).value(), near};
    // Others may have taken the device's memory since it was counted.
    if (bounds_.empty() || buffer.error().code() != ErrorCode::kResourceExhausted)
      return buffer.error();
  }
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                      allocate(bytes, MemoryKind::kHostVisible, layer, &Taken::far, count));
  return Blocks{std::move(buffer), count};
}

}  // namespace moeflux
