#include "backend/gpu/launch/launch_runs.h"

#include <cstring>

namespace moeflux::gpu {

bool share_kernel(const Launch& a, const Launch& b) {
  return a.kernel == b.kernel && a.threads == b.threads && a.shared_bytes == b.shared_bytes;
}

bool share_structure(const Launch& a, const Launch& b) {
  if (!share_kernel(a, b) || a.moving != b.moving) return false;
  for (uint32_t i = 0; i < a.num_pointers; ++i) {
    const bool moves = (a.moving >> i & 1) != 0;
    if (!moves && a.pointers[i] != b.pointers[i]) return false;
  }
  return true;
}

bool share_parameters(const Launch& a, const Launch& b) {
  return a.groups.x == b.groups.x && a.groups.y == b.groups.y && a.groups.z == b.groups.z &&
         a.pointers == b.pointers &&
         std::memcmp(a.params.data(), b.params.data(), a.params_bytes) == 0;
}

uint64_t kernels_hash(const std::vector<Launch>& launches) {
  uint64_t hash = launches.size();
  const auto add = [&](uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  for (const Launch& launch : launches) {
    add(static_cast<uint64_t>(launch.kernel) | uint64_t{launch.shared_bytes} << 16);
    add(launch.threads);
  }
  return hash;
}

}  // namespace moeflux::gpu
