// Rows of queries and their groups, as plans of attention count them.
#pragma once

#include <cstdint>

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/sequence_rows.h"
#include "base/units.h"

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
/// Memory for parts that groups leave, and the most of it; with more, parts are merged piece by
/// piece.
inline uint64_t partial_bytes(const AttentionParams& p) {
  const uint64_t rows = uint64_t{p.tokens} * p.heads;
  return rows * (kLeftWords + uint64_t{p.num_parts} * (p.partial_words + 2)) * sizeof(float);
}
inline uint64_t partial_bytes_max(const Platform& platform) {
  return platform.workspace_bytes_max() * 3 / 2;
}
constexpr uint32_t bytes_of(uint64_t words) { return static_cast<uint32_t>(words * sizeof(u32)); }

/// A kernel over pages of each type; keys and values have the same.
struct ByType {
  KernelId f32;
  KernelId f16;
  KernelId q8;
  KernelId of(DType type) const {
    return type == DType::kF16 ? f16 : type == DType::kI8 ? q8 : f32;
  }
};
inline DType row_type(const KvView& kv) { return kv.k_pages.front().dtype; }

}  // namespace moeflux::gpu
