// From logits to experts and their weights: what a SIMD group does. Everything stays on the device.
#pragma once

#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The score of an expert that is judged by itself.
MF_FN f32 own_score(MF_PARAMS(RouteParams) p, f32 logit) {
  if (p.score == kRouteSigmoid) return sigmoid(logit);
  return mf_sqrt(logit > 20.0f ? logit : mf_log1p(mf_exp(logit)));
}

/// Scores into p and p + correction into c, both shared. A lane owns every 32nd expert.
MF_FN void route_scores(MF_T t, MF_PARAMS(RouteParams) p, MF_GLOBAL(const f32) logits,
                        MF_GLOBAL(const f32) correction, MF_SHARED(f32) scores,
                        MF_SHARED(f32) choices) {
  f32 largest = -mf_infinity();
  for (u32 e = t.lane; e < p.experts; e += 32u) largest = mf_max(largest, logits[e]);
  largest = simd_max(t, largest);
  f32 total = 0.0f;
  for (u32 e = t.lane; e < p.experts; e += 32u) total += mf_exp(logits[e] - largest);
  total = simd_sum(t, total);
  for (u32 e = t.lane; e < p.experts; e += 32u) {
    const f32 score =
        p.score != kRouteSoftmax ? own_score(p, logits[e]) : mf_exp(logits[e] - largest) / total;
    scores[e] = score;
    const f32 choice = p.has_correction != 0u ? score + correction[e] : score;
    choices[e] = choice == choice ? choice : -mf_infinity();  // no number: chosen last
  }
  simd_barrier(t);
}

/// Sets the choices of all but the best groups to 0. A lane judges every 32nd group.
MF_FN void mask_groups(MF_T t, MF_PARAMS(RouteParams) p, MF_SHARED(f32) choices,
                       MF_SHARED(f32) groups) {
  const u32 size = p.experts / p.num_groups;
  for (u32 g = t.lane; g < p.num_groups; g += 32u) {
    f32 best = -mf_infinity();
    f32 second = -mf_infinity();
    for (u32 i = 0u; i < size; ++i) {
      const f32 c = choices[g * size + i];
      second = c > best ? best : mf_max(second, c);
      best = mf_max(best, c);
    }
    groups[g] = p.top_two != 0u && size > 1u ? best + second : best;
  }
  simd_barrier(t);
  for (u32 e = t.lane; e < p.experts; e += 32u) {
    const u32 own = e / size;
    const f32 score = groups[own];
    u32 better = 0u;
    for (u32 g = 0u; g < p.num_groups; ++g) {
      const f32 other = groups[g];
      if (other > score || (other == score && g < own)) ++better;
    }
    if (better >= p.groups_kept) choices[e] = 0.0f;
  }
  simd_barrier(t);
}

/// The best expert whose bit in the lanes' `taken` is not set; ties go to the lower id.
MF_FN u32 best_choice(MF_T t, u32 experts, MF_SHARED(f32) choices, u32 taken) {
  f32 best = -mf_infinity();
  u32 id = kNoEntry;
  for (u32 e = t.lane; e < experts; e += 32u) {
    if ((taken >> (e / 32u) & 1u) != 0u) continue;
    const f32 c = choices[e];
    if (id == kNoEntry || c > best) {
      best = c;
      id = e;
    }
  }
  for (u32 mask = 16u; mask > 0u; mask /= 2u) {
    const f32 other = simd_shuffle_xor(t, best, mask);
    const u32 other_id = simd_shuffle_xor(t, id, mask);
    const bool wins = id == kNoEntry || other > best || (other == best && other_id < id);
    if (other_id != kNoEntry && wins) {
      best = other;
      id = other_id;
    }
  }
  return simd_shuffle(t, id, 0u);  // one answer, even where scores are not numbers
}

/// A number's place among all numbers, of which both zeros are one; above 0.
MF_FN u32 route_order(f32 value) {
  const u32 bits = as_bits(value + 0.0f);
  return (bits >> 31u) != 0u ? ~bits : bits | 0x80000000u;
}

/// The number again; what has no order is below all.
MF_FN f32 route_value(u32 order) {
  return as_float((order >> 31u) != 0u ? order & 0x7fffffffu : ~order);
}

/// A candidate: order 0 is none.
struct RouteBest {
  u32 order;
  u32 id;
};

/// The best of the SIMD group's candidates, which is then taken. Ties go to the lower id.
template <u32 PER>
MF_FN RouteBest route_take(MF_T t, MF_LOCAL(RouteBest) own) {
  RouteBest best = own[0];
  MF_UNROLL
  for (u32 i = 1u; i < PER; ++i) {
    const bool wins =
        own[i].order > best.order || (own[i].order == best.order && own[i].id < best.id);
    best.order = wins ? own[i].order : best.order;
    best.id = wins ? own[i].id : best.id;
  }
  RouteBest taken;
  taken.order = simd_max(t, best.order);
  taken.id = simd_min(t, best.order == taken.order ? best.id : static_cast<u32>(kNoEntry));
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    if (own[i].id == taken.id) own[i].order = 0u;
  }
  return taken;
}

/// Order of an expert. Softmax keeps the order of logits; no number is chosen last.
MF_FN u32 route_choice(MF_PARAMS(RouteParams) p, f32 logit, MF_GLOBAL(const f32) correction,
                       u32 id) {
  f32 choice = logit;
  if (p.score != kRouteSoftmax) {
    choice = own_score(p, logit);
    if (p.has_correction != 0u) choice = choice + correction[id];
  }
  return route_order(choice == choice ? choice : -mf_infinity());
}

/// Weights of the chosen, one a lane, by one SIMD group.
MF_FN void route_weights(MF_T t, MF_PARAMS(RouteParams) p, u32 id, MF_GLOBAL(const f32) logits,
                         MF_GLOBAL(const f32) expert_scale, MF_GLOBAL(i32) ids,
                         MF_GLOBAL(f32) weights) {
  const bool is_rank = t.lane < p.top_k;
  const f32 logit = is_rank ? logits[id] : -mf_infinity();
  f32 score = 0.0f;
  if (p.score != kRouteSoftmax) {
    score = own_score(p, logit);
  } else {
    const f32 largest = simd_max(t, logit);
    f32 total = 0.0f;
    MF_ROLLED
    for (u32 e = t.lane; e < p.experts; e += 32u) total += mf_exp(logits[e] - largest);
    score = mf_exp(logit - largest) / simd_sum(t, total);
  }
  f32 sum = p.normalize_epsilon;
  MF_ROLLED
  for (u32 r = 0u; r < p.top_k; ++r) sum = sum + simd_shuffle(t, score, r);
  sum = mf_max(sum, p.normalize_least);
  if (!is_rank) return;
  f32 weight = score * p.scale;
  if (p.normalize != 0u) weight = weight / sum;
  if (p.has_expert_scale != 0u) weight = weight * expert_scale[id];
  ids[t.lane] = static_cast<i32>(id);
  weights[t.lane] = weight;
}

/// A bit for each of the best groups, whose scores are lanes'. Ties go to the lower one.
MF_FN u32 route_kept_groups(MF_T t, MF_PARAMS(RouteParams) p, f32 score) {
  const bool is_group = t.lane < p.num_groups;
  u32 better = 0u;
  for (u32 g = 0u; g < p.num_groups; ++g) {
    const f32 other = simd_shuffle(t, score, g);
    if (other > score || (other == score && g < t.lane)) ++better;
  }
  return simd_ballot(t, is_group && better < p.groups_kept);
}

/// The experts of groups that are not among the best have choices of 0. Group i is what lanes have
/// of number i.
template <u32 PER>
MF_FN void route_drop_groups(MF_T t, MF_PARAMS(RouteParams) p, MF_LOCAL(RouteBest) own) {
  f32 score = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    RouteBest rest = own[i];
    const f32 best = route_value(route_take<1u>(t, &rest).order);
    const f32 second = route_value(route_take<1u>(t, &rest).order);
    if (t.lane == i) score = p.top_two != 0u ? best + second : best;
  }
  const u32 groups = route_kept_groups(t, p, score);
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    if (i < p.num_groups && (groups >> i & 1u) == 0u) own[i].order = route_order(0.0f);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
