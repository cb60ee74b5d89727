// The experts of single tokens on matrix units: a slot reads its expert by itself, and so does each
// token the shared expert, whose weights are known before anything else is there. Where routes have
// not been chosen yet each SIMD group finds its slot's expert from the logits, which takes less
// time than waiting for another launch.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Tiles of an expert's matrix.
template <u32 BITS>
MF_FN UnitPart<BITS> unit_down_part(MF_T t, MF_PARAMS(UnitExpertParams) p, ExpertMatrix from) {
  return unit_part<BITS>(t, p.matrix, p.cols, MF_AT(t, const u8, from.data),
                         MF_AT(t, const u8, from.scales), MF_AT(t, const u8, from.biases));
}

/// Tiles of 8 rows of gate above those of up.
template <u32 BITS>
MF_FN UnitPart<BITS> unit_gate_up_part(MF_T t, MF_PARAMS(UnitExpertParams) p, ExpertMatrix gate,
                                       ExpertMatrix up) {
  const bool is_gate = t.lane < 16u;
  const u64 scales = is_gate ? gate.scales : up.scales;
  const u64 biases = is_gate ? gate.biases : up.biases;
  const UnitPart<BITS> part = {p.matrix,
                               p.cols,
                               kUnitRows / 2u,
                               MF_AT(t, const u8, gate.data),
                               MF_AT(t, const u8, up.data),
                               MF_AT(t, const u8, (t.lane & 1u) == 0u ? scales : biases)};
  return part;
}

/// Expert `id` where experts lie evenly.
MF_FN ExpertMatrix expert_at(ExpertMatrix first, u64 offset) {
  first.data += offset;
  first.scales += offset;
  first.biases += offset;
  first.bias = first.bias == 0u ? first.bias : first.bias + offset;
  return first;
}

/// An expert's matrices.
struct UnitSlot {
  ExpertMatrix matrices[2];  // gate and up, or down
  bool is_shared;
  bool exists;
};

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

/// Where a token's experts are found: chosen here, or by their ids.
struct UnitExpertFinder {
  MF_PARAMS(UnitExpertsOneParams) p;
  MF_SHARED(u32) chosen;
  MF_GLOBAL(const i32) ids;  // of the token
  MF_GLOBAL(const u32) map;
  MF_GLOBAL(const u64) entries;

  MF_FN_MEMBER UnitSlot slot(u32 rank, u32 which, u32 count) const {
    UnitSlot slot;
    slot.is_shared = rank == kNoEntry;
    slot.exists = slot.is_shared;
    slot.matrices[0] = p.shared[0];
    slot.matrices[1] = p.shared[1];
    if (slot.is_shared) return slot;
    const u32 id = p.route.thread_experts != 0u ? route_chosen(chosen, rank) : static_cast<u32>(ids[rank]);
    find_expert(p, &slot, id, map, entries, which, count);
    return slot;
  }
};

MF_FN void prefetch_rows(MF_T t, MF_PARAMS(UnitMatrix) m, u32 cols, ExpertMatrix from, u32 first, u32 rows, u32 lane) {
  if (first >= m.rows) return;
  if (rows > m.rows - first) rows = m.rows - first;
  if (t.lane == lane) prefetch_bytes(t, MF_AT(t, const u8, from.data) + static_cast<u64>(first) * (cols / 8u * m.bits), rows * (cols / 8u * m.bits));
  const u32 bytes = (cols >> m.group_shift) * 2u;
  if (t.lane == lane + 1u) prefetch_bytes(t, MF_AT(t, const u8, from.scales) + static_cast<u64>(first) * bytes, rows * bytes);
  if (t.lane == lane + 2u) prefetch_bytes(t, MF_AT(t, const u8, from.biases) + static_cast<u64>(first) * bytes, rows * bytes);
}
MF_FN UnitExpertShare ahead_share(MF_T t, MF_PARAMS(UnitExpertsOneParams) p) {
  const u32 each = (p.ahead_matrix.rows + kUnitRows - 1u) / kUnitRows;
  const u32 of_shared = p.shared[0].data != 0u ? each : 0u;
  const UnitTiles all = unit_tiles(p.ahead_walk, t.group.x, of_shared + p.expert.top_k * each);
  const UnitTiles own = unit_share_tiles(p.ahead_shared_tiles, p.ahead_shared_full, t.group.x, of_shared);
  const UnitExpertShare share = {each, own.end - own.first, own.first, all.first - own.first,
                                 all.end - all.first};
  return share;
}
/// out = gated_unit(gate x + bias, up x + bias).
template <u32 BITS>
struct UnitGateUp {
  enum : u32 { kTileRows = kUnitRows / 2u };
  UnitExpertFinder finder;

  MF_FN_MEMBER bool find(MF_T t, MF_LOCAL(UnitPart<BITS>) part, u32 rank) const {
    const UnitSlot slot = finder.slot(rank, 0u, 2u);
    if (slot.exists) *part = unit_gate_up_part<BITS>(t, finder.p.expert, slot.matrices[0], slot.matrices[1]);
    return slot.exists;
  }
};
struct UnitGateUpOut {
  UnitExpertFinder finder;
  MF_GLOBAL(f32) slots;  // of the token
  MF_GLOBAL(f32) shared_out;
  MF_GLOBAL(f32) out;
  u64 gate_bias;
  u64 up_bias;

  MF_FN_MEMBER void finish(MF_T t) const {
    MF_PARAMS(UnitExpertsOneParams) p = finder.p;
    if ((p.tune & 4u) == 0u) return;
    const UnitExpertShare share = ahead_share(t, p);
    const UnitStretch s = next_stretch(share, first_stretch(share));
    const u32 id = p.route.thread_experts != 0u ? route_chosen(finder.chosen, s.rank) : static_cast<u32>(finder.ids[s.rank]);
    u32 tiles = s.end - share.shared;
    if (tiles > p.ahead_kb) tiles = p.ahead_kb;
    prefetch_rows(t, p.ahead_matrix, p.ahead_cols, expert_at(p.ahead[0], id * p.stride), (share.shared + s.offset) * kUnitRows, tiles * kUnitRows, 0u);
  }
  MF_FN_MEMBER bool begin(MF_T, u32 rank) {
    const UnitSlot slot = finder.slot(rank, 0u, 2u);
    out = slot.is_shared ? shared_out : slots + rank * finder.p.expert.out_stride;
    gate_bias = slot.matrices[0].bias;
    up_bias = slot.matrices[1].bias;
    return slot.exists;
  }
  MF_FN_MEMBER void take(MF_T t, MF_SHARED(f32) parts, u32 splits, u32 first_tile,
                         u32 tiles) const {
    MF_PARAMS(UnitExpertParams) p = finder.p.expert;
    const u32 half = kUnitRows / 2u;
    for (u32 r = t.index; r < tiles * half; r += t.threads) {
      const u32 row = first_tile * half + r;
      if (row >= p.matrix.rows) return;
      MF_SHARED(f32) own = parts + (r / half * splits * kUnitRows + r % half);
      out[row] =
          gated_unit(sum_unit_splits(own, splits) + bias_at(t, gate_bias, row, p.bias_format),
                     sum_unit_splits(own + half, splits) + bias_at(t, up_bias, row, p.bias_format),
                     p.activation, p.alpha, p.limit, p.up_offset);
    }
  }
};

MF_FN void prefetch_shared(MF_T t, MF_PARAMS(UnitExpertsOneParams) p) {
  if (t.simd + 1u != t.simds) return;
  const UnitExpertShare share = ahead_share(t, p);
  if (share.shared != 0u) prefetch_rows(t, p.ahead_matrix, p.ahead_cols, p.ahead[1], share.shared_first * kUnitRows, share.shared * kUnitRows, 0u);
}
template <class Walker>
MF_FN void prefetch_first(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, MF_LOCAL(const Walker) walker) {
  if (t.simd + 1u != t.simds) return;
  const UnitStretch s = next_stretch(walker->share, first_stretch(walker->share));
  const UnitSlot slot = walker->finder.finder.slot(s.rank, 0u, 2u);
  u32 tiles = s.end - walker->share.shared;
  if (tiles > 2u) tiles = 2u;
  const u32 first = (walker->share.shared + s.offset) * 8u;
  prefetch_rows(t, p.expert.matrix, p.expert.cols, slot.matrices[0], first, tiles * 8u, 0u);
  prefetch_rows(t, p.expert.matrix, p.expert.cols, slot.matrices[1], first, tiles * 8u, 3u);
}

/// The row of activations staged by threads from `first` on.
struct UnitRowBeside {
  UnitMemoryRow row;
  u32 first;
  UnitWalk walk;
  MF_FN_MEMBER void run(MF_T t) const {
    const u32 step = t.threads - first;
    for (u32 o = t.index - first; o < walk.splits * (kUnitSplit / 8u); o += 2u * step) {
      stage_unit_octets(t, row.x, o, step, walk.splits, row.cols, row.wide);
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
  const u32 slot = token * e.top_k;
  MF_SHARED(u32) chosen = route_words(t, p);
  const UnitExpertFinder finder = {p, chosen, MF_CAST(const i32, ids + slot), map, entries};
  UnitExpertWalker<BITS, UnitGateUp<BITS>> walker = unit_expert_walker<BITS, UnitGateUp<BITS>>(t, p, {finder}, kUnitRows / 2u, x);
  walker.begin(t);
  if ((p.tune & 1u) != 0u) prefetch_shared(t, p);
  const bool chooses = p.route.thread_experts != 0u;
  const bool has_routed = walker.share.end != walker.share.shared;
  MF_GLOBAL(const f32) row_logits = logits + token * p.route.logits_stride;
  const bool has_beside = t.threads > kRouteThreads;
  const UnitRowBeside row = {{x + token * e.x_stride, e.cols, e.wide}, has_beside ? u32{kRouteThreads} : 0u, e.walk};
  await_inputs(t);
  const bool early = chooses && has_routed;
  if (early) {
    route_choose(t, p.route, p.route.top_k, chosen, row_logits, correction, &row);
    barrier(t);
  }
  if ((p.tune & 2u) != 0u && has_routed) prefetch_first(t, p, &walker);
  walker.fill(t, ~0u);
  if (!early || !has_beside) {
    const UnitRowBeside all = {row.row, 0u, e.walk};
    all.run(t);
    barrier(t);
  }
  UnitGateUpOut sink = {finder, out + slot * e.out_stride, shared_out + token * p.shared_out_stride, out, 0u, 0u};
  walker.run(t, &sink);
  if (!chooses || t.group.x != p.route_writer) return;
  if (!early) {
    barrier(t);
    const RouteNothing nothing = {};
    route_choose(t, p.route, p.route.top_k, chosen, row_logits, correction, &nothing);
    barrier(t);
  }
  route_write(t, p.route, token, chosen, row_logits, expert_scale, ids, weights);
}

/// out = (down x + bias) * sigmoid(gate).
template <u32 BITS>
struct UnitDown {
  UnitExpertFinder finder;

  MF_FN_MEMBER bool find(MF_T t, MF_LOCAL(UnitPart<BITS>) part, u32 rank) const {
    const UnitSlot slot = finder.slot(rank, 2u, 1u);
    if (slot.exists) *part = unit_down_part<BITS>(t, finder.p.expert, slot.matrices[0]);
    return slot.exists;
  }
};
struct UnitDownOut {
  UnitExpertFinder finder;
  MF_GLOBAL(f32) slots;  // of the token
  MF_GLOBAL(f32) shared_out;
  MF_GLOBAL(const f32) shared_gate;
  MF_GLOBAL(f32) out;
  u64 bias;
  bool has_gate;

  MF_FN_MEMBER void finish(MF_T) const {}
  MF_FN_MEMBER bool begin(MF_T, u32 rank) {
    const UnitSlot slot = finder.slot(rank, 2u, 1u);
    out = slot.is_shared ? shared_out : slots + rank * finder.p.expert.out_stride;
    bias = slot.matrices[0].bias;
    has_gate = slot.is_shared && finder.p.has_shared_gate != 0u;
    return slot.exists;
  }
  MF_FN_MEMBER void take(MF_T t, MF_SHARED(f32) parts, u32 splits, u32 first_tile,
                         u32 tiles) const {
    MF_PARAMS(UnitExpertParams) p = finder.p.expert;
    for (u32 r = t.index; r < tiles * kUnitRows; r += t.threads) {
      const u32 row = first_tile * kUnitRows + r;
      if (row >= p.matrix.rows) return;
      f32 sum =
          sum_unit_splits(parts + (r / kUnitRows * splits * kUnitRows + r % kUnitRows), splits);
      sum = sum + bias_at(t, bias, row, p.bias_format);
      out[row] = has_gate ? sum * sigmoid(shared_gate[0]) : sum;
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
  const u32 slot = token * e.top_k;
  MF_SHARED(u32) chosen = route_words(t, p);
  const UnitExpertFinder finder = {p, chosen, ids + slot, map, entries};
  UnitExpertWalker<BITS, UnitDown<BITS>> walker = unit_expert_walker<BITS, UnitDown<BITS>>(t, p, {finder}, kUnitRows, x);
  walker.begin(t);
  if (p.route.thread_experts != 0u && walker.share.end != walker.share.shared) {
    const RouteNothing nothing = {};
    route_choose(t, p.route, p.route.top_k, chosen, logits + token * p.route.logits_stride, correction, &nothing);
    barrier(t);
  }
  walker.fill(t, ~0u);
  await_inputs(t);
  const UnitExpertRows rows = {x + slot * e.x_stride, e.x_stride, shared_x + token * p.shared_x_stride, e.cols, e.wide};
  rows.stage(t, e.walk, walker.share);
  barrier(t);
  UnitDownOut sink = {finder, out + slot * e.out_stride, shared_out + token * p.shared_out_stride, shared_gate + token, out, 0u, false};
  walker.run(t, &sink);
}

// Group x: a share of the tiles; y: a token. 256 threads or more. A kernel for each width of codes: wide
// ones need twice the registers.
#define MF_UNIT_EXPERTS_ONE(BITS, threads, fits)                                              \
  MF_FITS(threads, fits)                                                                      \
  MF_KERNEL(unit_gate_up_one##BITS, UnitExpertsOneParams, MF_WRITE(0, i32, ids),              \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction),  \
            MF_READ(4, f32, expert_scale), MF_READ(5, u32, map), MF_READ(6, u64, entries),    \
            MF_READ(7, f32, x), MF_WRITE(8, f32, out), MF_WRITE(9, f32, shared_out)) {        \
    MF_THREAD_EARLY;                                                                          \
    unit_gate_up_of_token<BITS##u>(t, p, ids, weights, logits, correction, expert_scale, map,  \
                                  entries, x, out, shared_out);                               \
  }                                                                                           \
  MF_FITS(threads, fits)                                                                      \
  MF_KERNEL(unit_down_one##BITS, UnitExpertsOneParams, MF_READ(0, i32, ids),                  \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction),  \
            MF_READ(4, u32, map), MF_READ(5, u64, entries), MF_READ(6, f32, x),               \
            MF_WRITE(7, f32, out), MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),   \
            MF_WRITE(10, f32, shared_out)) {                                                  \
    MF_THREAD_EARLY;                                                                          \
    static_cast<void>(weights);                                                               \
    unit_down_of_token<BITS##u>(t, p, ids, logits, correction, map, entries, x, out, shared_x, \
                               shared_gate, shared_out);                                      \
  }
MF_UNIT_EXPERTS_ONE(4, kUnitThreadsMax, kUnitFits4 / 2)
MF_UNIT_EXPERTS_ONE(8, kUnitThreads, kUnitFits8)
#undef MF_UNIT_EXPERTS_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
