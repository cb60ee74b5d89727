// The greatest values of rows: the best of each piece, then the best of those.
#pragma once

#include "backend/gpu/kernels/route/choice.h"
#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// As route_order(), but what is no number is as high as plus infinity.
MF_FN u32 top_order(f32 value) {
  return value == value ? route_order(value) : route_order(mf_infinity());
}

/// Group x: a piece; y: a row. 32 threads. Writes k values and ids, best first, equal ones in the
/// order they stand in; id -1 where a piece has no more. A mask hides no infinity.
MF_KERNEL(top_values, TopParams, MF_READ(0, f32, x), MF_READ(1, i32, x_ids),
          MF_WRITE(2, f32, values), MF_WRITE(3, i32, ids), MF_READ(4, u32, mask)) {
  MF_THREAD;
  const u32 begin = t.group.x * kTopPiece;
  const u64 row = t.group.y * p.stride;
  RouteBest own[kTopLane];  // by place, as equal values keep their order
  MF_UNROLL
  for (u32 i = 0u; i < kTopLane; ++i) {
    const u32 at = begin + t.lane + i * 32u;
    own[i].id = at;
    own[i].order = 0u;
    if (at < p.cols && (p.has_ids == 0u || x_ids[row + at] >= 0)) {
      const u32 order = top_order(x[row + at]);
      const bool is_found = p.mask_words == 0u || order >= route_order(mf_infinity()) ||
                            (mask[t.group.y * p.mask_words + at / 32u] >> (at % 32u) & 1u) != 0u;
      own[i].order = is_found ? order : 0u;
    }
  }
  const u64 out = t.group.y * p.out_stride + t.group.x * p.k;
  RouteBest found[kTopFound];  // of every 32nd rank from `lane` on
  MF_UNROLL
  for (u32 i = 0u; i < kTopFound; ++i) {
    found[i].id = 0u;
    found[i].order = 0u;
  }
  for (u32 rank = 0u; rank < p.k; ++rank) {
    const RouteBest best = route_take<kTopLane>(t, own);
    if (best.order == 0u) break;  // of all lanes: there are no more
    MF_UNROLL
    for (u32 i = 0u; i < kTopFound; ++i) {
      if (rank == t.lane + i * 32u) found[i] = best;
    }
  }
  MF_UNROLL
  for (u32 i = 0u; i < kTopFound; ++i) {
    const u32 rank = t.lane + i * 32u;
    if (rank < p.k) {
      const u32 at = found[i].id;
      const bool exists = found[i].order != 0u;
      values[out + rank] = exists ? x[row + at] : -mf_infinity();
      ids[out + rank] = !exists ? -1 : p.has_ids != 0u ? x_ids[row + at] : static_cast<i32>(at);
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
