// Rows of queries and their groups, as plans of attention count them.
#pragma once

#include <cstdint>

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/launch/plan_building.h"

namespace moeflux::gpu {

inline uint64_t rows_of_kv_head(const AttentionParams& p) {
  return uint64_t{p.tokens} * p.heads_per_kv_head;
}
/// Groups of so many rows of a kv head, which are of one sequence.
inline uint64_t row_groups(const AttentionParams& p, uint32_t rows) {
  if (p.lengths == 0) return groups_for(rows_of_kv_head(p), rows);
  return uint64_t{p.tokens} * groups_for(p.heads_per_kv_head, rows);
}
inline uint32_t kv_heads_of(const AttentionParams& p) { return p.heads / p.heads_per_kv_head; }
constexpr uint32_t bytes_of(uint64_t words) { return static_cast<uint32_t>(words * sizeof(u32)); }

}  // namespace moeflux::gpu
