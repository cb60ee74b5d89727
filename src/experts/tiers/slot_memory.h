// Memory for slots of experts where less may be had than there seemed to be: other programs take a
// device's memory too, and systems let only so much of the host's be pinned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "backend/device.h"

namespace moeflux {

/// Told in one line of memory that was not to be had, or null.
using LessMemory = std::function<void(const std::string& line)>;

struct SlotMemoryRequest {
  std::string_view name;  // for that line
  size_t slots = 0;
  size_t slots_min = 0;
  size_t slot_bytes = 0;
  MemoryKind kind = MemoryKind::kDevice;
  /// The part of its slots that a refused request asks for next.
  double share = 0.5;
  /// Bytes of the kind that fewer slots than asked for leave to others.
  uint64_t leave_bytes = 0;
  LessMemory on_less = {};
};

struct SlotMemory {
  std::unique_ptr<Buffer> buffer;  // null without slots
  size_t slots = 0;
};

/// As many slots as asked for, or else fewer. Fails with the device's error where it has no memory
/// for slots_min either, and with any other error but kResourceExhausted.
Result<SlotMemory> allocate_slots(Device& device, const SlotMemoryRequest& request);

}  // namespace moeflux
