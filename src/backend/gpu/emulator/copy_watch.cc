#include "backend/gpu/emulator/copy_watch.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux::gpu::emulator {

WatchedMemory* CopyWatch::find(const void* begin) const {
  const auto at = std::ranges::find(watched_, reinterpret_cast<uintptr_t>(begin),
                                    [](const auto& memory) { return memory->begin_; });
  return at == watched_.end() ? nullptr : at->get();
}

// An allocation may lie where one that is gone did.
WatchedMemory& CopyWatch::watch(const Buffer& buffer) {
  WatchedMemory* const found = find(buffer.host_data());
  if (found != nullptr && found->bytes_ == buffer.size_bytes()) return *found;
  if (found != nullptr)
    std::erase_if(watched_, [&](auto& memory) { return memory.get() == found; });
  return *watched_.emplace_back(std::make_unique<WatchedMemory>(
      reinterpret_cast<uintptr_t>(buffer.host_data()), buffer.size_bytes()));
}

Status CopyWatch::ask(CopyId id, const BufferCopy& copy, EventId after) {
  if (copy.bytes == 0) return {};
  // Either may move what the other has found.
  (void)watch(*copy.from);
  WatchedMemory& to = watch(*copy.to);
  WatchedMemory& from = *find(copy.from->host_data());
  const auto copy_number = static_cast<uint32_t>(id);
  const auto marks_of = [](uint64_t offset, uint64_t bytes) {
    return std::pair(offset / WatchedMemory::kMarkBytes,
                     (offset + bytes - 1) / WatchedMemory::kMarkBytes);
  };
  const auto race = [&](const char* what, const WatchedMemory::Touch& by, const char* verb) {
    return make_error(ErrorCode::kFailedPrecondition,
                      "race of copy {}, which waits for event {}: it {} that {}, before event {}, "
                      "{}",
                      copy_number, static_cast<uint64_t>(after), what, names_[by.who], by.event,
                      verb);
  };
  const auto [to_first, to_last] = marks_of(copy.to_offset, copy.bytes);
  for (size_t i = to_first; i <= to_last; ++i) {
    WatchedMemory::Mark& mark = to.marks_[i];
    if (mark.touched.event > static_cast<uint64_t>(after)) {
      return race("writes memory", mark.touched, "may still use");
    }
    mark.filled_by = copy_number;
  }
  const auto [from_first, from_last] = marks_of(copy.from_offset, copy.bytes);
  for (size_t i = from_first; i <= from_last; ++i) {
    WatchedMemory::Mark& mark = from.marks_[i];
    if (mark.written.event > static_cast<uint64_t>(after)) {
      return race("reads memory", mark.written, "may not have written yet");
    }
    mark.read_by = copy_number;
  }
  return {};
}

void CopyWatch::order(CopyId last) { ordered_ = std::max(ordered_, static_cast<uint32_t>(last)); }

void CopyWatch::begin_work(std::string_view name, EventId event) {
  const auto at = std::ranges::find(names_, name);
  now_ = {static_cast<uint32_t>(event), static_cast<uint32_t>(at - names_.begin())};
  if (at == names_.end()) names_.push_back(name);
}

std::string CopyWatch::report(const WatchedMemory& memory, uintptr_t address, bool writes) const {
  const bool by_fill = raced_->filled_by > ordered_;
  return formatted(
      "race of copies: {} bytes from {} of {}, which copy {} may still {}: this comes after copies "
      "up to {} only",
      writes ? "writes" : "reads", address - memory.begin_, memory.bytes_,
      by_fill ? raced_->filled_by : raced_->read_by, by_fill ? "write" : "read", ordered_);
}

}  // namespace moeflux::gpu::emulator
