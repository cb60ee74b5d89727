#include "backend/gpu/launch/device_tables.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"

namespace moeflux::gpu {
namespace {

// The tables of a model with 256 experts in each of 60 layers, and of its pages.
constexpr uint64_t kTableBytesMin = uint64_t{4} << 20;

uint64_t hash_of(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u ^ bytes.size();
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  for (; i < bytes.size(); ++i) hash = (hash ^ static_cast<uint64_t>(bytes[i])) * 0x100000001b3u;
  return hash;
}

}  // namespace

Result<Binding> DeviceTables::place(std::span<const std::byte> bytes) {
  const uint64_t hash = hash_of(bytes);
  const auto binding = [&](const Entry& entry) {
    return Binding{buffers_.back().get(), entry.begin, entry.bytes, Access::kRead, /*moves=*/true};
  };
  if (const auto found = entries_.find(hash);
      found != entries_.end() && found->second.bytes == bytes.size() &&
      std::memcmp(mirror_.data() + found->second.begin, bytes.data(), bytes.size()) == 0) {
    return binding(found->second);
  }
  MF_RETURN_IF_ERROR(make_room(bytes.size()));
  const Entry entry{used_, bytes.size()};
  used_ = round_up(used_ + bytes.size(), kAlignment);
  std::copy(bytes.begin(), bytes.end(), mirror_.begin() + static_cast<ptrdiff_t>(entry.begin));
  if (is_used_before_) {
    executor_.write(*buffers_.back(), entry.begin, bytes);
    is_used_before_ = false;  // launches from here on have tables that were placed since
  } else {
    executor_.write_ahead(*buffers_.back(), entry.begin, bytes);
  }
  entries_[hash] = entry;
  return binding(entry);
}

Status DeviceTables::make_room(size_t bytes) {
  if (used_ + bytes <= mirror_.size()) return {};
  entries_.clear();
  is_used_before_ = used_ > 0;
  used_ = 0;
  if (bytes <= mirror_.size()) return {};
  // A platform that is small in its workspace has no room for large tables either.
  const auto least = static_cast<size_t>(std::min(kTableBytesMin, platform_.workspace_bytes_max()));
  const size_t size = std::max(least, 2 * bytes);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                      platform_.allocate(size, MemoryKind::kDevice));
  buffers_.push_back(std::move(buffer));
  mirror_.resize(size);
  is_used_before_ = false;
  return {};
}

Result<Binding> Workspace::take(size_t bytes) {
  if (buffers_.empty() || buffers_.back()->size_bytes() < bytes) {
    const size_t grown = buffers_.empty() ? 0 : 2 * buffers_.back()->size_bytes();
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> buffer,
                        platform_.allocate(std::max(bytes, grown), MemoryKind::kDevice));
    buffers_.push_back(std::move(buffer));
  }
  return Binding{buffers_.back().get(), 0, bytes, Access::kReadWrite};
}

}  // namespace moeflux::gpu
