#include "experts/tiers/slot_memory.h"

#include <algorithm>

#include "base/format.h"
#include "base/units.h"

namespace moeflux {
namespace {

Result<SlotMemory> try_slots(Device& device, const SlotMemoryRequest& request, size_t slots) {
  SlotMemory memory{nullptr, slots};
  if (slots > 0) {
    MF_ASSIGN_OR_RETURN(memory.buffer, device.allocate(slots * request.slot_bytes, request.kind));
  }
  const bool is_less = slots < request.slots && slots > request.slots_min;
  if (is_less && request.leave_bytes > 0) {
    MF_RETURN_IF_ERROR(device.allocate(request.leave_bytes, request.kind));
  }
  return memory;
}

}  // namespace

Result<SlotMemory> allocate_slots(Device& device, const SlotMemoryRequest& request) {
  Status refusal;
  for (size_t slots = request.slots;;) {
    Result<SlotMemory> memory = try_slots(device, request, slots);
    const bool is_refused = !memory.ok() && memory.error().code() == ErrorCode::kResourceExhausted;
    if (memory.ok() && !refusal.ok() && request.on_less) {
      request.on_less(formatted(
          "{}: {} instead of {}: {}", request.name, format_bytes(slots * request.slot_bytes),
          format_bytes(request.slots * request.slot_bytes), refusal.error().message()));
    }
    if (!is_refused || slots <= request.slots_min) return memory;
    if (refusal.ok()) refusal = memory.error();
    const auto share = static_cast<size_t>(static_cast<double>(slots) * request.share);
    slots = std::max(request.slots_min, std::min(slots - 1, share));
  }
}

}  // namespace moeflux
