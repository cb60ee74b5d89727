#include "state/state_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/units.h"

namespace moeflux {
namespace {

// The states of two copies of Qwen3.5-35B, where no plan has bounds for them.
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

void StateMemory::bound(std::vector<Bounds> bounds) {
  bounds_ = std::move(bounds);
  shared_->near_bytes.clear();
  for (const Bounds& part : bounds_) shared_->near_bytes.push_back(part.near_bytes);
}

// A buffer for which there is no room goes to the system.
void StateMemory::Shared::keep(std::unique_ptr<Buffer> buffer, LayerId layer, size_t part) {
  const uint64_t bytes = buffer->size_bytes();
  Taken& own = taken[part];
  const uint64_t used = near_bytes.empty() ? 0 : own.near_kept + own.near_pages;
  const uint64_t most = near_bytes.empty() ? kSpareBytesMax : near_bytes[part];
  if (used + own.spare + bytes > most) return;
  try {
    spares[{layer, bytes}].push_back(std::move(buffer));
    own.spare += bytes;
  } catch (const std::bad_alloc&) {
    return;
  }
}

void StateMemory::Shared::drop_spares(const Device& device, size_t part) {
  std::erase_if(spares,
                [&](const auto& spare) { return device.part_of(spare.first.first) == part; });
  taken[part].spare = 0;
}

std::vector<StateMemory::PartHeads> StateMemory::parts_of(LayerId layer, int64_t heads) const {
  std::vector<PartHeads> parts;
  const std::vector<int64_t> divided =
      heads > 1 ? device_.heads_by_part(layer, heads) : std::vector<int64_t>();
  for (size_t part = 0; part < divided.size(); ++part) {
    const auto own = static_cast<uint64_t>(divided[part]);
    if (own > 0) parts.push_back({part, own, static_cast<uint64_t>(heads)});
  }
  if (parts.empty()) parts.push_back({device_.part_of(layer)});
  return parts;
}

// Counted before there is a shared pointer: where that cannot be made, it gives back.
std::shared_ptr<Buffer> StateMemory::counted(std::unique_ptr<Buffer> memory, Place place,
                                             uint64_t Taken::*counter) {
  const uint64_t bytes = memory->size_bytes();
  for (const PartHeads& own : place.parts) {
    shared_->taken[own.part].*counter += own.of_bytes(bytes);
  }
  const auto give_back = [shared = shared_, place = std::move(place), counter, bytes](Buffer* old) {
    std::unique_ptr<Buffer> buffer(old);
    for (const PartHeads& own : place.parts) {
      shared->taken[own.part].*counter -= own.of_bytes(bytes);
    }
    if (!place.is_spared || counter == &Taken::far) return;
    shared->keep(std::move(buffer), place.layer, place.parts.front().part);
  };
  return std::shared_ptr<Buffer>(memory.release(), give_back);
}

std::shared_ptr<Buffer> StateMemory::take_spare(uint64_t bytes, Use use, LayerId layer,
                                                int64_t heads) {
  if (!whole_part(layer, heads)) return nullptr;
  const auto found = shared_->spares.find({layer, bytes});
  if (found == shared_->spares.end() || found->second.empty()) return nullptr;
  std::unique_ptr<Buffer> memory = std::move(found->second.back());
  found->second.pop_back();
  const size_t part = device_.part_of(layer);
  shared_->taken[part].spare -= bytes;
  return counted(std::move(memory), {layer, {{part}}, true}, near_counter(use));
}

std::shared_ptr<Buffer> StateMemory::take_near(uint64_t bytes, Use use, LayerId layer) {
  const size_t part = device_.part_of(layer);
  if (near_left(use, part) < bytes) shared_->drop_spares(device_, part);
  if (near_left(use, part) < bytes) return nullptr;
  auto memory = device_.allocate_heads(layer, 1, bytes, MemoryKind::kDevice);
  if (!memory.ok()) return nullptr;
  return counted(std::move(memory).value(), {layer, {{part}}, true}, near_counter(use));
}

std::optional<size_t> StateMemory::whole_part(LayerId layer, int64_t heads) const {
  const PartHeads first = parts_of(layer, heads).front();
  return first.of == 1 ? std::optional(first.part) : std::nullopt;
}

std::shared_ptr<Buffer> StateMemory::zeros(uint64_t bytes, LayerId layer) {
  std::shared_ptr<Buffer>& own = zeros_[device_.part_of(layer)];
  if (own == nullptr || own->size_bytes() < bytes) {
    const Result<Blocks> taken = take(bytes, 1, Use::kEveryStep, layer);
    own = taken.ok() ? taken.value().buffer : nullptr;
  }
  return own;
}

Result<StateMemory::Blocks> StateMemory::take(uint64_t bytes, size_t count, Use use, LayerId layer,
                                              int64_t heads) {
  const std::vector<PartHeads> parts = parts_of(layer, heads);
  // Blocks that this part of the device has room for.
  const auto room_on = [&](const PartHeads& own) -> uint64_t {
    const uint64_t own_bytes = own.of_bytes(bytes);
    return own_bytes == 0 ? count : near_left(use, own.part) / own_bytes;
  };
  uint64_t near = count;
  for (const PartHeads& own : parts) {
    if (room_on(own) < count) shared_->drop_spares(device_, own.part);
    near = std::min(near, room_on(own));
  }
  const auto allocate = [&](MemoryKind kind, size_t blocks,
                            uint64_t Taken::*counter) -> Result<std::shared_ptr<Buffer>> {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory,
                        device_.allocate_heads(layer, heads, blocks * bytes, kind));
    const bool is_spared = blocks == 1 && parts.front().of == 1;
    return counted(std::move(memory), {layer, parts, is_spared}, counter);
  };
  if (near > 0) {
    auto buffer = allocate(MemoryKind::kDevice, near, near_counter(use));
    if (buffer.ok()) return Blocks{std::move(buffer).value(), near};
    // Others may have taken the device's memory since it was counted.
    if (bounds_.empty() || buffer.error().code() != ErrorCode::kResourceExhausted)
      return buffer.error();
  }
  MF_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer,
                      allocate(MemoryKind::kHostVisible, count, &Taken::far));
  return Blocks{std::move(buffer), count, /*is_far=*/true};
}

}  // namespace moeflux
