// The experts of one token, found by a group. It finds all ranks at once: the rank of a number is
// how many are better, counted first within its SIMD group, then among the best of each. This takes
// 3000 cycles in an H200's experts' launch; rank by rank, with two exchanges each, the last of
// eight took 5000. Each SIMD group can then take another rank.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/choice.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// log2 of how many of its best a SIMD group puts forward.
MF_FN u32 route_shift(u32 ranks) { return ranks <= 8u ? 3u : 4u; }

/// Puts the best of a SIMD group's experts among the candidates; a lane of the 256 threads has PER
/// experts. Where experts have groups, a SIMD group has one of them and stores its score.
template <u32 PER>
MF_FN void route_candidates(MF_T t, MF_PARAMS(RouteParams) p, u32 shift, MF_SHARED(u32) shared,
                            MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction) {
  MF_SHARED(u32) keys = shared + (kRouteKeys + t.simd * (32u * PER));
  u32 own[PER];
  u32 before[PER];
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    const u32 id = t.index * PER + i;
    own[i] = id < p.experts ? route_choice(p, logits[id], correction, id) : 0u;
    keys[t.lane * PER + i] = own[i];
    before[i] = 0u;
  }
  simd_barrier(t);
  // Rolled: text that runs once is fetched from memory.
  MF_ROLLED
  for (u32 j = 0u; j < 32u * PER; j += 4u) {
    const W4 four = load4(keys + j);
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      MF_UNROLL
      for (u32 i = 0u; i < PER; ++i) {
        // Equal ones keep their order.
        const u32 least = own[i] + (j + e < t.lane * PER + i ? 0u : 1u);
        before[i] += four.v[e] >= least ? 1u : 0u;
      }
    }
  }
  MF_SHARED(u32) best = shared + (t.simd << shift);
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    if (before[i] >> shift != 0u) continue;
    best[before[i]] = own[i];
    best[kRouteIds + before[i]] = t.index * PER + i;
  }
  if (p.num_groups <= 1u) return;
  simd_barrier(t);
  if (t.lane != 0u) return;
  const f32 first = route_value(best[0]);
  shared[kRouteGroups + t.simd] = as_bits(p.top_two != 0u ? first + route_value(best[1]) : first);
}

/// The candidates' ranks: experts of ranks below `ranks` to their places among the chosen. Experts
/// of groups that are not kept count as 0, so that the first of them come first.
MF_FN void route_rank_candidates(MF_T t, MF_PARAMS(RouteParams) p, u32 ranks, u32 shift,
                                 MF_SHARED(u32) shared) {
  u32 kept = ~0u;
  if (p.num_groups > 1u) {
    const u32 at = t.lane < p.num_groups ? t.lane : 0u;
    kept = route_kept_groups(t, p, as_float(shared[kRouteGroups + at]));
  }
  const u32 parts = 5u - shift;  // log2 of the threads that share a candidate: 4 or 2
  const u32 part = t.index & ((1u << parts) - 1u);
  const u32 own = t.index >> parts;
  const u32 own_group = own >> shift;
  const u32 zero = route_order(0.0f);
  const bool is_kept = (kept >> own_group & 1u) != 0u;
  const u32 order = is_kept ? static_cast<u32>(shared[own]) : zero;
  const u32 groups = kRouteJudges >> parts;  // of candidates, that the thread compares with
  u32 before = 0u;
  // No branch, as lanes differ.
  MF_ROLLED
  for (u32 i = 0u; i < groups; ++i) {
    const u32 g = part * groups + i;
    const u32 least = order + (g < own_group ? 0u : 1u);
    u32 count = 0u;
    MF_ROLLED
    for (u32 j = 0u; j < 1u << shift; j += 8u) {
      MF_UNROLL
      for (u32 e = 0u; e < 8u; e += 4u) {
        const W4 four = load4(shared + ((g << shift) + j + e));
        MF_UNROLL
        for (u32 k = 0u; k < 4u; ++k) count += four.v[k] >= least ? 1u : 0u;
      }
    }
    const u32 all = zero >= least ? 1u << shift : 0u;
    count = (kept >> g & 1u) != 0u ? count : all;
    before += g == own_group ? own & ((1u << shift) - 1u) : count;  // they stand in order
  }
  MF_ROLLED
  for (u32 step = 1u; step < 1u << parts; step *= 2u) before += simd_shuffle_xor(t, before, step);
  if (before >= ranks || (t.index & ((1u << parts) - 1u)) != 0u) return;
  shared[kRouteChosen + before] =
      is_kept ? static_cast<u32>(shared[kRouteIds + own])
              : own_group * kRouteGroupExperts + (own & ((1u << shift) - 1u));
}

/// The experts of the best `ranks` of a token to shared memory; a barrier follows before they are
/// read by route_chosen(). The first 256 threads of a group find them, all of its threads call; the
/// others run `beside`.
template <class Beside>
MF_FN void route_choose_beside(MF_T t, MF_PARAMS(RouteParams) p, u32 ranks, MF_SHARED(u32) shared,
                               MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction,
                               MF_LOCAL(const Beside) beside) {
  const u32 shift = route_shift(ranks);
  const bool takes_part = t.index < kRouteThreads;
  if (!takes_part) {
    beside->run(t);
  } else if (p.thread_experts == 1u) {
    route_candidates<1u>(t, p, shift, shared, logits, correction);
  } else {
    route_candidates<2u>(t, p, shift, shared, logits, correction);
  }
  barrier(t);
  if (takes_part) route_rank_candidates(t, p, ranks, shift, shared);
}
struct RouteAlone {
  MF_FN_MEMBER void run(MF_T) const {}
};
MF_FN void route_choose(MF_T t, MF_PARAMS(RouteParams) p, u32 ranks, MF_SHARED(u32) shared,
                        MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction) {
  const RouteAlone alone = {};
  route_choose_beside(t, p, ranks, shared, logits, correction, &alone);
}
MF_FN u32 route_chosen(MF_SHARED(u32) shared, u32 rank) { return shared[kRouteChosen + rank]; }

/// The expert of one rank of a token, on every thread of a group. Has barriers.
MF_FN u32 route_slot(MF_T t, MF_PARAMS(RouteParams) p, u32 token, u32 rank, MF_SHARED(u32) shared,
                     MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction) {
  route_choose(t, p, p.top_k, shared, logits + token * p.logits_stride, correction);
  barrier(t);
  return route_chosen(shared, rank);
}

/// Writes a token's choice to ids and weights, by one SIMD group.
MF_FN void route_write(MF_T t, MF_PARAMS(RouteParams) p, u32 token, MF_SHARED(u32) shared,
                       MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) expert_scale,
                       MF_GLOBAL(i32) ids, MF_GLOBAL(f32) weights) {
  if (t.simd != 0u) return;
  const u32 id = t.lane < p.top_k ? route_chosen(shared, t.lane) : static_cast<u32>(kNoEntry);
  route_weights(t, p, id, logits, expert_scale, ids + token * p.top_k, weights + token * p.top_k);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
