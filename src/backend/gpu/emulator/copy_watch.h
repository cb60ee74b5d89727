// Watches the memory that copies beside launches fill and read, and the events that order them with
// launches. A launch that touches what a copy may still be writing is a race, and so is a copy into
// what a launch may still be reading: on a GPU both would mostly go well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/events.h"
#include "base/result.h"

namespace moeflux::gpu::emulator {

/// An allocation that copies go to or come from.
class WatchedMemory {
 public:
  WatchedMemory(uintptr_t begin, size_t bytes)
      : begin_(begin), bytes_(bytes), marks_(bytes / kMarkBytes + 1) {}

 private:
  friend class CopyWatch;
  /// Slots of experts begin and end at multiples of it.
  static constexpr size_t kMarkBytes = 64;
  struct Touch {
    uint32_t event = 0;  // that has it behind it; 0: never
    uint32_t who = 0;    // among CopyWatch::names_
  };
  struct Mark {
    Touch touched;           // last, by work in order
    Touch written;           // the same of writes
    uint32_t filled_by = 0;  // the last copy into it,
    uint32_t read_by = 0;    // and out of it
  };

  uintptr_t begin_;
  size_t bytes_;
  std::vector<Mark> marks_;
};

/// For one executor. Knows what has happened to memory since the first copy that went to it or came
/// from it.
class CopyWatch {
 public:
  /// A copy that may begin once the work before `after` has ended. Fails with the report of a race
  /// with work that has run behind that event.
  Status ask(CopyId id, const BufferCopy& copy, EventId after);
  /// Work that begins from now on comes after these copies and all before them.
  void order(CopyId last);
  /// A launch begins, or the host's own access: what it is called, and the event that will have it
  /// behind it. The name must stay.
  void begin_work(std::string_view name, EventId event);
  /// The allocation that begins there, if it is watched.
  WatchedMemory* find(const void* begin) const;
  /// The work touches these bytes. False at a race, of which report() tells.
  bool touch(WatchedMemory& memory, uintptr_t address, size_t bytes, bool writes) {
    raced_ = nullptr;
    const size_t first = (address - memory.begin_) / WatchedMemory::kMarkBytes;
    const size_t last = (address + bytes - 1 - memory.begin_) / WatchedMemory::kMarkBytes;
    for (size_t i = first; i <= last; ++i) {
      WatchedMemory::Mark& mark = memory.marks_[i];
      if (mark.filled_by > ordered_ || (writes && mark.read_by > ordered_)) raced_ = &mark;
      mark.touched = now_;
      if (writes) mark.written = now_;
    }
    return raced_ == nullptr;
  }
  std::string report(const WatchedMemory& memory, uintptr_t address, bool writes) const;

 private:
  WatchedMemory& watch(const Buffer& buffer);

  std::vector<std::unique_ptr<WatchedMemory>> watched_;
  std::vector<std::string_view> names_ = {""};
  WatchedMemory::Touch now_;
  uint32_t ordered_ = 0;  // the work at hand comes after copies up to this one
  const WatchedMemory::Mark* raced_ = nullptr;  // by the last access
};

}  // namespace moeflux::gpu::emulator
