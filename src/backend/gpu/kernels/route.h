// From logits to the experts of each token: a SIMD group a token, everything stays on the device.
// Routers without groups stay in registers, where a rank costs two exchanges.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

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
    const f32 score = p.sigmoid != 0u ? sigmoid(logits[e]) : mf_exp(logits[e] - largest) / total;
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

/// As route_scores(): a lane owns every 32nd expert. Experts that are not there have order 0.
template <u32 PER>
MF_FN void route_lane_scores(MF_T t, MF_PARAMS(RouteParams) p, MF_GLOBAL(const f32) logits,
                             MF_GLOBAL(const f32) correction, MF_LOCAL(f32) scores,
                             MF_LOCAL(u32) orders) {
  f32 largest = -mf_infinity();
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    const u32 e = t.lane + i * 32u;
    scores[i] = e < p.experts ? logits[e] : -mf_infinity();
    largest = mf_max(largest, scores[i]);
  }
  if (p.sigmoid == 0u) {
    largest = simd_max(t, largest);
    f32 total = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < PER; ++i) {
      scores[i] = mf_exp(scores[i] - largest);
      if (t.lane + i * 32u < p.experts) total += scores[i];
    }
    total = simd_sum(t, total);
    MF_UNROLL
    for (u32 i = 0u; i < PER; ++i) scores[i] = scores[i] / total;
  } else {
    MF_UNROLL
    for (u32 i = 0u; i < PER; ++i) scores[i] = sigmoid(scores[i]);
  }
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    const u32 e = t.lane + i * 32u;
    orders[i] = 0u;
    if (e < p.experts) {
      const f32 choice = p.has_correction != 0u ? scores[i] + correction[e] : scores[i];
      orders[i] = route_order(choice == choice ? choice : -mf_infinity());
    }
  }
}

/// The best expert, which is then taken: its order becomes 0. Ties go to the lower id.
template <u32 PER>
MF_FN u32 route_take(MF_T t, MF_LOCAL(u32) orders) {
  u32 best = 0u;
  u32 own = kNoEntry;
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    if (orders[i] > best) {
      best = orders[i];
      own = t.lane + i * 32u;
    }
  }
  const u32 highest = simd_max(t, best);
  const u32 id = simd_min(t, best == highest ? own : static_cast<u32>(kNoEntry));
  MF_UNROLL
  for (u32 i = 0u; i < PER; ++i) {
    if (id == t.lane + i * 32u) orders[i] = 0u;
  }
  return id;
}

/// The expert of one rank of one token, on every lane. `writes`: all ranks to ids and weights.
template <u32 PER>
MF_FN u32 route_lanes(MF_T t, MF_PARAMS(RouteParams) p, u32 rank, bool writes,
                      MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction,
                      MF_GLOBAL(const f32) expert_scale, MF_GLOBAL(i32) ids,
                      MF_GLOBAL(f32) weights) {
  f32 scores[PER];
  u32 orders[PER];
  route_lane_scores<PER>(t, p, logits, correction, scores, orders);
  const u32 ranks = writes ? p.top_k : rank + 1u;
  u32 wanted = 0u;
  u32 own_id = 0u;
  f32 own_score = 0.0f;
  f32 sum = p.normalize_epsilon;
  for (u32 r = 0u; r < ranks; ++r) {
    const u32 id = route_take<PER>(t, orders);
    if (r == rank) wanted = id;
    if (writes) {
      f32 score = 0.0f;
      MF_UNROLL
      for (u32 i = 0u; i < PER; ++i) {
        if (id == t.lane + i * 32u) score = scores[i];
      }
      score = simd_shuffle(t, score, id % 32u);
      sum = sum + score;
      if (t.lane == r) {
        own_id = id;
        own_score = score;
      }
    }
  }
  if (writes && t.lane < p.top_k) {
    f32 weight = own_score * p.scale;
    if (p.normalize != 0u) weight = weight / sum;
    if (p.has_expert_scale != 0u) weight = weight * expert_scale[own_id];
    ids[t.lane] = static_cast<i32>(own_id);
    weights[t.lane] = weight;
  }
  return wanted;
}

/// The same for a token among others: its row of each.
MF_FN u32 route_token(MF_T t, MF_PARAMS(RouteParams) p, u32 token, u32 rank, bool writes,
                      MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction,
                      MF_GLOBAL(const f32) expert_scale, MF_GLOBAL(i32) ids,
                      MF_GLOBAL(f32) weights) {
  MF_GLOBAL(const f32) row = logits + token * p.logits_stride;
  MF_GLOBAL(i32) token_ids = ids + token * p.top_k;
  MF_GLOBAL(f32) token_weights = weights + token * p.top_k;
  if (p.lane_experts == kRouteFew) {
    return route_lanes<kRouteFew>(t, p, rank, writes, row, correction, expert_scale, token_ids,
                                  token_weights);
  }
  return route_lanes<kRouteMany>(t, p, rank, writes, row, correction, expert_scale, token_ids,
                                 token_weights);
}

/// Group x: a token; 32 threads. Shared, if not in registers: scores, choices, groups, and what was
/// chosen.
MF_KERNEL(route_tokens, RouteParams, MF_READ(0, f32, logits), MF_READ(1, f32, correction),
          MF_READ(2, f32, expert_scale), MF_WRITE(3, i32, ids), MF_WRITE(4, f32, weights)) {
  MF_THREAD;
  const u32 token = t.group.x;
  if (p.lane_experts != 0u) {
    route_token(t, p, token, 0u, true, logits, correction, expert_scale, ids, weights);
    return;
  }
  MF_SHARED(f32) scores = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) choices = scores + p.experts;
  MF_SHARED(f32) groups = choices + p.experts;
  MF_SHARED(u32) chosen = MF_SHARED_AT(t, u32, (2u * p.experts + p.num_groups) * 4u);
  route_scores(t, p, logits + token * p.logits_stride, correction, scores, choices);
  if (p.num_groups > 1u) mask_groups(t, p, choices, groups);
  u32 taken = 0u;
  f32 sum = p.normalize_epsilon;
  for (u32 rank = 0u; rank < p.top_k; ++rank) {
    const u32 id = best_choice(t, p.experts, choices, taken);
    sum = sum + scores[id];
    if (id % 32u == t.lane) taken |= 1u << (id / 32u);
    if (t.lane == 0u) chosen[rank] = id;
  }
  simd_barrier(t);
  for (u32 rank = t.lane; rank < p.top_k; rank += 32u) {
    const u32 id = chosen[rank];
    f32 weight = scores[id] * p.scale;
    if (p.normalize != 0u) weight = weight / sum;
    if (p.has_expert_scale != 0u) weight = weight * expert_scale[id];
    ids[static_cast<u64>(token) * p.top_k + rank] = static_cast<i32>(id);
    weights[static_cast<u64>(token) * p.top_k + rank] = weight;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
