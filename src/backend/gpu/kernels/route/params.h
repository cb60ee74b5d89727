// How tokens are routed to experts.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// Limits of routing by a group of threads, in registers: experts, ranks and words of shared
/// memory. Groups of experts there are a SIMD group's each.
enum : u32 {
  kRouteThreads = 256,
  kRouteSimds = 4,  // of many tokens in a group, which have a SIMD group each
  kRouteExpertsMax = 2 * kRouteThreads,
  kRouteRanksMax = 16,
  kRouteGroupExperts = 32,
  kRouteJudges = kRouteThreads / 32,           // SIMD groups, each with its experts
  kRouteIds = kRouteJudges * kRouteRanksMax,   // where they begin, after their orders
  kRouteGroups = 2 * kRouteIds,                // and the groups' scores
  kRouteChosen = kRouteGroups + kRouteJudges,  // and the ids of the best
  kRouteKeys = kRouteChosen + kRouteRanksMax,  // and the orders of all experts
  kRouteWords = kRouteKeys + kRouteExpertsMax,
};

/// Functions that turn logits into scores.
enum : u32 { kRouteSoftmax = 0, kRouteSigmoid = 1, kRouteSqrtSoftplus = 2 };

struct RouteParams {
  u64 logits_stride;
  u32 tokens;
  u32 experts;
  u32 top_k;
  u32 score;  // kRouteSoftmax, kRouteSigmoid or kRouteSqrtSoftplus
  u32 num_groups;
  u32 groups_kept;
  u32 top_two;  // a group's score is the sum of its two best
  u32 normalize;
  u32 has_correction;
  u32 has_expert_scale;
  u32 thread_experts;  // 1 or 2 in groups of 256; 0: a SIMD group, through shared memory
  f32 normalize_epsilon;
  f32 normalize_least;
  f32 scale;
};

struct ShareWeightsParams {
  u64 logits_stride;
  u32 tokens;
  u32 top_k;
  u32 shared;  // experts that every token has
  f32 scale;
};

}  // namespace gpu
}  // namespace moeflux
