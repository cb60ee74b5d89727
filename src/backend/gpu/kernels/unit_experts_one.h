// The experts of single tokens on matrix units: a slot reads its expert by itself, and so does each
// token the shared expert, whose weights are known before anything else is there. Where routes have
// not been chosen yet each SIMD group finds its slot's expert from the logits, which takes less
// time than waiting for another launch.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Expert `id` where experts lie evenly.
MF_FN ExpertMatrix expert_at(ExpertMatrix first, u64 offset) {
  first.data += offset;
  first.scales += offset;
  first.biases += offset;
  first.bias = first.bias == 0u ? first.bias : first.bias + offset;
  return first;
}

/// The matrices of expert `id`, `count` from matrix `which` of its entry.
MF_FN void find_expert(MF_PARAMS(UnitExpertsOneParams) p, MF_LOCAL(UnitSlot) slot, u32 id,
                       MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries, u32 which,
                       u32 count) {
  slot->exists = id < p.expert.ids;
  if (!slot->exists) return;
  if (p.stride != 0u) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      if (i < count) slot->matrices[i] = expert_at(p.first[i], id * p.stride);
    }
    return;
  }
  const u32 entry = map[id];
  slot->exists = entry != kNoEntry;
  if (!slot->exists) return;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    if (i < count) slot->matrices[i] = expert_matrix(entries, entry, which + i);
  }
}

MF_FN MF_SHARED(u32) route_words(MF_T t, MF_PARAMS(UnitExpertsOneParams) p) {
  return MF_SHARED_AT(t, u32, p.expert.walk.more * 4u);
}

/// An expert of a token, chosen here or by its id.
MF_FN UnitSlot unit_slot(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, u32 rank,
                         MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map,
                         MF_GLOBAL(const u64) entries, u32 which, u32 count) {
  UnitSlot slot;
  slot.is_shared = rank == kNoEntry;
  slot.exists = slot.is_shared;
  slot.matrices[0] = p.shared[0];
  slot.matrices[1] = p.shared[1];
  if (slot.is_shared) return slot;
  const u32 id = p.route.thread_experts != 0u
                     ? route_chosen(route_words(t, p), rank)
                     : static_cast<u32>(ids[t.group.y * p.expert.top_k + rank]);
  find_expert(p, &slot, id, map, entries, which, count);
  return slot;
}

/// Writes down what is to be known of the group's experts, a thread each. Has a barrier.
MF_FN void list_experts(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, UnitExpertShare share,
                        MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map,
                        MF_GLOBAL(const u64) entries, u32 which, u32 count) {
  const u32 experts = experts_of(share);
  for (u32 i = t.index; i < experts; i += t.threads) {
    const u32 before = share.shared == 0u ? 0u : 1u;
    const u32 rank = i < before ? u32{kNoEntry} : first_rank(share) + i - before;
    store_stretch(unit_stretch(t, p.expert.walk, i), share, rank,
                  unit_slot(t, p, rank, ids, map, entries, which, count));
  }
  barrier(t);
}

/// A walker with the shared expert's first splits under way. `anything` stands where there is none.
template <u32 BITS, u32 COUNT>
MF_FN UnitExpertWalker<BITS, COUNT> begin_experts(MF_T t, MF_PARAMS(UnitExpertsOneParams) p,
                                                  UnitExpertShare share,
                                                  MF_GLOBAL(const f32) anything) {
  MF_PARAMS(UnitExpertParams) e = p.expert;
  const u32 lower = t.lane < 16u ? 0u : COUNT - 1u;
  MF_GLOBAL(const u8) bytes = MF_CAST(const u8, anything);
  UnitExpertWalker<BITS, COUNT> walker = {
      e.walk,
      {e.matrix, e.cols, kUnitRows / COUNT, bytes, bytes, bytes},
      share.end,
      share.shared == 0u ? ~0u : 0u,
      share.shared,
      share.shared_first,
      share.shared != 0u,
      {0u, 0u},
      0u};
  if (walker.exists) {
    walker.part.upper = MF_AT(t, const u8, p.shared[0].data);
    walker.part.lower = MF_AT(t, const u8, p.shared[COUNT - 1u].data);
    walker.part.scales =
        MF_AT(t, const u8, (t.lane & 1u) == 0u ? p.shared[lower].scales : p.shared[lower].biases);
  }
  store_unit_zeros(t, e.walk.staged);
  const UnitTiles tiles = {0u, share.end};
  walker.next.begin(t, e.walk, tiles);
  walker.fill(t, 1u, share.shared);
  return walker;
}

/// out = gated_unit(gate x + bias, up x + bias).
struct UnitGateUpOut {
  MF_PARAMS(UnitExpertsOneParams) p;
  MF_GLOBAL(f32) slots;
  MF_GLOBAL(f32) shared_out;

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(u32) expert, MF_SHARED(f32) parts, u32 splits,
                         u32 first_tile, u32 tiles) const {
    MF_PARAMS(UnitExpertParams) e = p.expert;
    const u32 rank = expert[kStretchRank];
    const u64 gate_bias = load_address(expert + (kStretchMatrices + 6u));
    const u64 up_bias = load_address(expert + (kStretchMatrices + 6u + kUnitMatrixWords));
    MF_GLOBAL(f32) out = slots + static_cast<u64>(t.group.y * e.top_k + rank) * e.out_stride;
    if (rank == kNoEntry) out = shared_out + t.group.y * p.shared_out_stride;
    const u32 half = kUnitRows / 2u;
    for (u32 r = t.index; r < tiles * half; r += t.threads) {
      const u32 row = first_tile * half + r;
      if (row >= e.matrix.rows) return;
      MF_SHARED(f32) own = parts + (r / half * splits * kUnitRows + r % half);
      out[row] =
          gated_unit(sum_unit_splits(own, splits) + bias_at(t, gate_bias, row, e.bias_format),
                     sum_unit_splits(own + half, splits) + bias_at(t, up_bias, row, e.bias_format),
                     e.activation, e.alpha, e.limit, e.up_offset);
    }
  }
};

/// A row of activations, staged by the threads from `first` on.
struct UnitRowBeside {
  UnitMemoryRow row;
  u32 first;
  u32 splits;
  MF_FN_MEMBER void run(MF_T t) const {
    const u32 step = t.threads - first;
    for (u32 o = t.index - first; o < splits * (kUnitSplit / 8u); o += 2u * step) {
      stage_unit_octets(t, row.x, o, step, splits, row.cols, row.wide);
    }
  }
};

template <u32 BITS>
MF_FN void unit_gate_up_of_token(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, MF_GLOBAL(i32) ids,
                                 MF_GLOBAL(f32) weights, MF_GLOBAL(const f32) logits,
                                 MF_GLOBAL(const f32) correction, MF_GLOBAL(const f32) expert_scale,
                                 MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                                 MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out,
                                 MF_GLOBAL(f32) shared_out) {
  MF_PARAMS(UnitExpertParams) e = p.expert;
  const u32 token = t.group.y;
  const UnitExpertShare share = expert_share(t, p, kUnitRows / 2u);
  UnitExpertWalker<BITS, 2u> walker = begin_experts<BITS, 2u>(t, p, share, x);
  MF_GLOBAL(const f32) own_logits = logits + token * p.route.logits_stride;
  const bool chooses = p.route.thread_experts != 0u;
  const bool writes = chooses && t.group.x == p.route_writer;
  const bool has_routes = chooses && (writes || share.end != share.shared);
  // Threads that choose no routes have time for the row of activations.
  const bool has_others = has_routes && t.threads > kRouteThreads;
  UnitRowBeside row = {{x + token * e.x_stride, e.cols, e.wide},
                       has_others ? u32{kRouteThreads} : 0u,
                       e.walk.splits};
  // Groups that are there before their inputs choose from nothing first: what is slow about it is
  // to fetch its text.
  MF_ROLLED
  for (u32 pass = has_routes && e.walk.places == 1u ? MF_FIRST_PASS : 1u; pass < 2u; ++pass) {
    row.row.cols = pass == 0u ? 0u : e.cols;
    if (pass == 1u) await_inputs(t);
    if (has_routes) {
      route_choose(t, p.route, pass == 0u ? 0u : p.route.experts, p.route.top_k, route_words(t, p),
                   own_logits, correction, &row);
      barrier(t);
    }
    list_experts(t, p, share, MF_CAST(const i32, ids), map, entries, 0u, 2u);
  }
  walker.fill(t, kUnitPlaces, ~0u);
  if (!has_others) {
    row.run(t);
    barrier(t);
  }
  const UnitGateUpOut sink = {p, out, shared_out};
  walker.run(t, &sink);
  if (!writes) return;
  route_write(t, p.route, token, route_words(t, p), own_logits, expert_scale, ids, weights);
}

/// out = (down x + bias) * sigmoid(gate).
struct UnitDownOut {
  MF_PARAMS(UnitExpertsOneParams) p;
  MF_GLOBAL(f32) slots;
  MF_GLOBAL(f32) shared_out;
  MF_GLOBAL(const f32) shared_gate;

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(u32) expert, MF_SHARED(f32) parts, u32 splits,
                         u32 first_tile, u32 tiles) const {
    MF_PARAMS(UnitExpertParams) e = p.expert;
    const u32 rank = expert[kStretchRank];
    const u64 bias = load_address(expert + (kStretchMatrices + 6u));
    const bool has_gate = rank == kNoEntry && p.has_shared_gate != 0u;
    MF_GLOBAL(f32) out = slots + static_cast<u64>(t.group.y * e.top_k + rank) * e.out_stride;
    if (rank == kNoEntry) out = shared_out + t.group.y * p.shared_out_stride;
    for (u32 r = t.index; r < tiles * kUnitRows; r += t.threads) {
      const u32 row = first_tile * kUnitRows + r;
      if (row >= e.matrix.rows) return;
      f32 sum =
          sum_unit_splits(parts + (r / kUnitRows * splits * kUnitRows + r % kUnitRows), splits);
      sum = sum + bias_at(t, bias, row, e.bias_format);
      out[row] = has_gate ? sum * sigmoid(shared_gate[t.group.y]) : sum;
    }
  }
};

/// What is read before the inputs are awaited was written before unit_gate_up_one, which comes
/// right before: ids, or the logits that both choose from.
template <u32 BITS>
MF_FN void unit_down_of_token(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, MF_GLOBAL(const i32) ids,
                              MF_GLOBAL(const f32) logits, MF_GLOBAL(const f32) correction,
                              MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                              MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out,
                              MF_GLOBAL(const f32) shared_x, MF_GLOBAL(const f32) shared_gate,
                              MF_GLOBAL(f32) shared_out) {
  MF_PARAMS(UnitExpertParams) e = p.expert;
  const u32 token = t.group.y;
  const UnitExpertShare share = expert_share(t, p, kUnitRows);
  UnitExpertWalker<BITS, 1u> walker = begin_experts<BITS, 1u>(t, p, share, x);
  if (p.route.thread_experts != 0u && share.end != share.shared) {
    const RouteNothing nothing = {};
    route_choose(t, p.route, p.route.experts, p.route.top_k, route_words(t, p),
                 logits + token * p.route.logits_stride, correction, &nothing);
    barrier(t);
  }
  list_experts(t, p, share, ids, map, entries, 2u, 1u);
  walker.fill(t, kUnitPlaces, ~0u);
  await_inputs(t);
  const UnitExpertRows rows = {x + static_cast<u64>(token * e.top_k) * e.x_stride, e.x_stride,
                               shared_x + token * p.shared_x_stride, e.cols, e.wide};
  rows.stage(t, e.walk, share);
  barrier(t);
  const UnitDownOut sink = {p, out, shared_out, shared_gate};
  walker.run(t, &sink);
}

// Group x: a share of the tiles; y: a token. 256 threads or more. A kernel for each width of codes:
// wide ones need twice the registers.
#define MF_UNIT_EXPERTS_ONE(BITS, threads, fits)                                               \
  MF_FITS(threads, fits)                                                                       \
  MF_KERNEL(unit_gate_up_one##BITS, UnitExpertsOneParams, MF_WRITE(0, i32, ids),               \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction),   \
            MF_READ(4, f32, expert_scale), MF_READ(5, u32, map), MF_READ(6, u64, entries),     \
            MF_READ(7, f32, x), MF_WRITE(8, f32, out), MF_WRITE(9, f32, shared_out)) {         \
    MF_THREAD_EARLY;                                                                           \
    unit_gate_up_of_token<BITS##u>(t, p, ids, weights, logits, correction, expert_scale, map,  \
                                   entries, x, out, shared_out);                               \
  }                                                                                            \
  MF_FITS(threads, fits)                                                                       \
  MF_KERNEL(unit_down_one##BITS, UnitExpertsOneParams, MF_READ(0, i32, ids),                   \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction),   \
            MF_READ(4, u32, map), MF_READ(5, u64, entries), MF_READ(6, f32, x),                \
            MF_WRITE(7, f32, out), MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),    \
            MF_WRITE(10, f32, shared_out)) {                                                   \
    MF_THREAD_EARLY;                                                                           \
    static_cast<void>(weights);                                                                \
    unit_down_of_token<BITS##u>(t, p, ids, logits, correction, map, entries, x, out, shared_x, \
                                shared_gate, shared_out);                                      \
  }
MF_UNIT_EXPERTS_ONE(4, kUnitExpertFits4* kUnitThreads, 1)
MF_UNIT_EXPERTS_ONE(8, kUnitThreads, kUnitFits8)
#undef MF_UNIT_EXPERTS_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
