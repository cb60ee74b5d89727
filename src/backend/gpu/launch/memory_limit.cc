#include "backend/gpu/launch/memory_limit.h"

#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {

MemoryLimit::Share::~Share() {
  if (limit_ == nullptr) return;
  const std::scoped_lock lock(limit_->mutex_);
  limit_->taken_ -= bytes_;
}

Result<MemoryLimit::Share> MemoryLimit::take(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes_max_ && bytes > *bytes_max_ - taken_) {
    return make_error(ErrorCode::kResourceExhausted,
                      "cannot allocate {} of the device's memory: {} are left of {}",
                      format_bytes(bytes), format_bytes(*bytes_max_ - taken_),
                      format_bytes(*bytes_max_));
  }
  taken_ += bytes;
  return Share(*this, bytes);
}

std::optional<uint64_t> MemoryLimit::bytes_left() const {
  if (!bytes_max_) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  return *bytes_max_ - taken_;
}

}  // namespace moeflux::gpu
