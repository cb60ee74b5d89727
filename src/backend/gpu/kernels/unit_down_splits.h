// unit_down_sum from rows of several splits: a group has tiles of 16 rows of all slots of a token
// and of the shared expert, and all their activations as integers; its SIMD groups take the splits
// in turn, those of the shared expert first, as its weights are known before the routes are.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

struct UnitDownGroup {
  u32 ranks;
  u32 experts;  // and the shared one
  u32 tiles;
  u32 first;  // of them
};

/// A split of a group's tiles. Experts stand in the order of ranks, the shared one behind them; but
/// its splits of all tiles are taken first.
struct UnitDownCursor {
  u32 tile;
  u32 expert;
  u32 split;

  /// By `experts` times all splits of an expert, and `splits`.
  MF_FN_MEMBER void advance(u32 experts, u32 splits, u32 all, UnitDownGroup group) {
    split += splits;
    if (split >= all) {
      split -= all;
      ++experts;
    }
    if (expert == group.ranks) {
      tile += experts;
      if (tile < group.tiles) return;
      experts = tile - group.tiles;
      tile = 0u;
      expert = 0u;
    }
    expert += experts;
    MF_ROLLED
    while (expert >= group.ranks) {
      expert -= group.ranks;
      ++tile;
    }
  }
};

template <u32 BITS>
struct UnitDownWalker {
  UnitPart<BITS> part;
  UnitWalk walk;
  UnitDownGroup group;
  UnitDownCursor next;
  u32 filled;

  MF_FN_MEMBER u32 place_at(MF_T t, u32 place) const {
    return walk.begin + (t.simd * walk.places + place) * static_cast<u32>(UnitPart<BITS>::kWords);
  }
  MF_FN_MEMBER void advance(MF_LOCAL(UnitDownCursor) cursor) const {
    cursor->advance(walk.tile_step, walk.split_step, walk.splits, group);
  }
  MF_FN_MEMBER u32 split_of(UnitDownCursor cursor) const {
    return cursor.expert * walk.splits + cursor.split;
  }
  MF_FN_MEMBER void issue(MF_T t, u32 place) {
    if (next.tile < group.tiles) {
      MF_SHARED(u32)
      at = MF_SHARED_AT(t, u32, (walk.experts + next.expert * kUnitMatrixWords) * 4u);
      const u64 data = load_address(at);
      if (data != 0u) {
        part.upper = MF_AT(t, const u8, data);
        part.lower = part.upper;
        part.scales = MF_AT(t, const u8, load_address(at + ((t.lane & 1u) == 0u ? 2u : 4u)));
        part.issue(t, place_at(t, place), group.first + next.tile, next.split);
      }
      advance(&next);
    }
    copies_commit(t);
  }
  /// Brings the first splits under way to `places` places, or only those of the shared expert.
  MF_FN_MEMBER void fill(MF_T t, u32 places, bool all) {
    MF_ROLLED
    while (filled < places && (all || next.expert == group.ranks)) {
      issue(t, filled);
      ++filled;
    }
  }
  MF_FN_MEMBER UnitDownCursor start(MF_T t) const {
    UnitDownCursor cursor = {0u, group.experts > group.ranks ? group.ranks : 0u, 0u};
    const u32 experts = t.simd / walk.splits;
    cursor.advance(experts, t.simd - experts * walk.splits, walk.splits, group);
    if (t.simd >= walk.simds) cursor.tile = group.tiles;
    return cursor;
  }
  /// Leaves the sums of all splits.
  MF_FN_MEMBER void run(MF_T t) {
    UnitDownCursor now = start(t);
    u32 place = 0u;
    MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(walk.staged).parts * 4u);
    MF_ROLLED
    while (now.tile < group.tiles) {
      copies_wait<kUnitPlaces - 1u>(t);
      simd_barrier(t);
      MF_SHARED(u32)
      at = MF_SHARED_AT(t, u32, (walk.experts + now.expert * kUnitMatrixWords) * 4u);
      if (load_address(at) != 0u) {
        const u32 split = split_of(now);
        part.multiply(t, place_at(t, place), split, walk.staged,
                      parts + (now.tile * walk.staged + split) * kUnitRows);
      }
      simd_barrier(t);
      issue(t, place);
      place = place + 1u == kUnitPlaces ? 0u : place + 1u;
      advance(&now);
    }
  }
};

/// Octets of rows of activations of a token's slots, then of the shared expert's, on their way to
/// shared memory: so many of a thread.
enum : u32 { kDownOctets = 5 };
struct UnitDownRows {
  MF_GLOBAL(const f32) x;  // of the token's first slot
  u64 stride;
  MF_GLOBAL(const f32) shared_x;
  u32 ranks;
  u32 all;  // octets
  u32 cols;
  u32 wide;
  f32 values[kDownOctets * 8];

  /// Those from octet `first` on, all under way at once.
  MF_FN_MEMBER void load(MF_T t, UnitWalk walk, u32 first) {
    const u32 octets = walk.splits * (kUnitSplit / 8u);
    MF_UNROLL
    for (u32 i = 0u; i < kDownOctets; ++i) {
      const u32 at = first + i * t.threads + t.index;
      const u32 row = at / octets;
      MF_GLOBAL(const f32) from = shared_x;
      if (row < ranks) from = x + row * stride;
      load_octet(values + i * 8u, from, (at - row * octets) * 8u, at < all ? cols : 0u, wide);
    }
  }
  MF_FN_MEMBER void store(MF_T t, UnitWalk walk, u32 first) const {
    MF_UNROLL
    for (u32 i = 0u; i < kDownOctets; ++i) {
      const u32 at = first + i * t.threads + t.index;
      if (at < all) store_unit_octet(t, values + i * 8u, at, walk.staged);  // all lanes or none
    }
  }
};

/// What a group knows of an expert: an ExpertMatrix, whose data are at 0 if it is not there.
MF_FN MF_SHARED(u32) down_expert(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, u32 expert) {
  return MF_SHARED_AT(t, u32, (p.expert.walk.experts + expert * kUnitMatrixWords) * 4u);
}

/// Where the slots' experts are found, to shared memory. Has a barrier.
MF_FN void list_down_experts(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, u32 ranks,
                             MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map,
                             MF_GLOBAL(const u64) entries) {
  if (t.index < ranks) {
    UnitSlot slot;
    find_expert(p, &slot, static_cast<u32>(ids[t.index]), map, entries, 2u, 1u);
    if (!slot.exists) slot.matrices[0].data = 0u;
    store_matrix(down_expert(t, p, t.index), slot.matrices[0]);
  }
  barrier(t);
}

MF_FN MF_SHARED(f32) down_factors(MF_T t, MF_PARAMS(UnitExpertsOneParams) p) {
  return MF_SHARED_AT(t, f32, (p.expert.walk.experts + kUnitDownFactors) * 4u);
}
/// The weights of a token's slots, and what the shared expert's result is multiplied by.
MF_FN void list_down_factors(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, UnitDownGroup group,
                             MF_GLOBAL(const f32) weights, MF_GLOBAL(const f32) shared_gate) {
  if (t.index >= group.experts) return;
  f32 factor = 1.0f;
  if (t.index < group.ranks) factor = weights[t.index];
  if (t.index == group.ranks && p.has_shared_gate != 0u) factor = sigmoid(shared_gate[0]);
  down_factors(t, p)[t.index] = factor;
}

/// Rows of activations and what is known of experts to shared memory, and the first splits under
/// way; awaits the inputs. Routes that the kernel before chose are read when it has finished: to
/// choose them again takes longer in groups that start when others end.
template <u32 BITS>
MF_FN void begin_down_splits(MF_T t, MF_PARAMS(UnitExpertsOneParams) p,
                             MF_LOCAL(UnitDownWalker<BITS>) walker, MF_LOCAL(UnitDownRows) rows,
                             MF_GLOBAL(const i32) ids, MF_GLOBAL(const u32) map,
                             MF_GLOBAL(const u64) entries) {
  const UnitDownGroup group = walker->group;
  walker->next = walker->start(t);
  store_unit_zeros(t, p.expert.walk.staged);
  if (t.index == 0u && group.experts > group.ranks) {
    store_matrix(down_expert(t, p, group.ranks), p.shared[0]);
  }
  barrier(t);
  walker->fill(t, 1u, false);
  const bool waits = p.route.thread_experts != 0u;
  if (!waits) {
    list_down_experts(t, p, group.ranks, ids, map, entries);
    walker->fill(t, 1u, true);
  }
  await_inputs(t);
  MF_ROLLED
  for (u32 first = 0u; first < rows->all; first += kDownOctets * t.threads) {
    rows->load(t, p.expert.walk, first);
    if (first == 0u) {
      if (waits) list_down_experts(t, p, group.ranks, ids, map, entries);
      walker->fill(t, kUnitPlaces, true);  // not before: loads wait behind copies
    }
    rows->store(t, p.expert.walk, first);
  }
}

/// Of each expert of a group's tiles the value of each row, to memory and to where the sums of its
/// first split are.
MF_FN void store_down_values(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, UnitDownGroup group,
                             MF_SHARED(f32) parts, MF_GLOBAL(f32) out, MF_GLOBAL(f32) shared_out) {
  MF_PARAMS(UnitExpertParams) e = p.expert;
  for (u32 i = t.index; i < group.experts * (group.tiles * kUnitRows); i += t.threads) {
    const u32 unit = i / kUnitRows;  // an expert of a tile
    const u32 tile = unit / group.experts;
    const u32 expert = unit - tile * group.experts;
    const u32 row = (group.first + tile) * kUnitRows + i % kUnitRows;
    if (row >= e.matrix.rows) continue;
    const bool is_shared = expert == group.ranks;
    MF_GLOBAL(f32) to = out + expert * e.out_stride;
    if (is_shared) to = shared_out;
    MF_SHARED(f32) own = parts + (unit * e.walk.splits * kUnitRows + i % kUnitRows);
    MF_SHARED(u32) matrix = down_expert(t, p, expert);
    if (load_address(matrix) == 0u) {  // the value of an expert that was ready before is in memory
      own[0] = to[row];
      continue;
    }
    f32 value = sum_unit_splits(own, e.walk.splits) +
                bias_at(t, load_address(matrix + 6u), row, e.bias_format);
    if (is_shared && p.has_shared_gate != 0u) value = value * down_factors(t, p)[expert];
    to[row] = value;
    own[0] = value;
  }
}

template <u32 BITS>
MF_FN void unit_down_splits_and_sum(MF_T t, MF_PARAMS(UnitDownSumParams) p,
                                    MF_GLOBAL(const i32) ids, MF_GLOBAL(const f32) weights,
                                    MF_GLOBAL(const u32) map, MF_GLOBAL(const u64) entries,
                                    MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out,
                                    MF_GLOBAL(const f32) shared_x, MF_GLOBAL(const f32) shared_gate,
                                    MF_GLOBAL(f32) shared_out, MF_GLOBAL(const f32) addend1,
                                    MF_GLOBAL(const f32) addend2, MF_GLOBAL(f32) sum0,
                                    MF_GLOBAL(f32) sum1, MF_GLOBAL(f32) sum2) {
  MF_PARAMS(UnitExpertsOneParams) s = p.experts;
  MF_PARAMS(UnitExpertParams) e = s.expert;
  const UnitWalk walk = e.walk;
  const u32 token = t.group.y;
  const u64 slot = static_cast<u64>(token) * e.top_k;
  const UnitTiles tiles = unit_tiles(walk, t.group.x, (e.matrix.rows + kUnitRows - 1u) / kUnitRows);
  const UnitDownGroup group = {e.top_k, e.top_k + p.has_shared, tiles.end - tiles.first,
                               tiles.first};
  MF_GLOBAL(const u8) bytes = MF_CAST(const u8, x);  // stands where no expert is known
  UnitDownWalker<BITS> walker = {
      {e.matrix, e.cols, kUnitRows, bytes, bytes, bytes}, walk, group, {0u, 0u, 0u}, 0u};
  UnitDownRows staged = {x + slot * e.x_stride,
                         e.x_stride,
                         shared_x + token * s.shared_x_stride,
                         group.ranks,
                         group.experts * walk.splits * (kUnitSplit / 8u),
                         e.cols,
                         e.wide,
                         {}};
  begin_down_splits<BITS>(t, s, &walker, &staged, ids + slot, map, entries);
  list_down_factors(t, s, group, weights + slot, shared_gate + token);
  // The SIMD group's rows of the sums, asked for early.
  const u32 row = (group.first + t.simd) * kUnitRows + t.lane % kUnitRows;
  const bool has_row = t.simd < group.tiles && row < e.matrix.rows;
  const u64 at = static_cast<u64>(token) * e.matrix.rows + row;
  const f32 more = down_addend(t, p, has_row, addend1 + at, addend2 + at);
  barrier(t);
  walker.run(t);
  barrier(t);
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, unit_one_shared(walk.staged).parts * 4u);
  store_down_values(t, s, group, parts, out + slot * e.out_stride,
                    shared_out + token * s.shared_out_stride);
  barrier(t);
  if (t.simd >= group.tiles) return;
  const f32 weight = t.lane < group.ranks ? f32{down_factors(t, s)[t.lane]} : 0.0f;
  store_down_sums(t, p, parts + (t.simd * walk.staged * kUnitRows + t.lane % kUnitRows),
                  walk.splits * kUnitRows, weight, more, has_row, sum0 + at, sum1 + at, sum2 + at);
}

// Group x: a share of the tiles, at most one a SIMD group; y: a token.
#define MF_UNIT_DOWN_SPLITS(BITS)                                                                \
  MF_FITS(kUnitThreadsMax, 1)                                                                    \
  MF_KERNEL(unit_down_splits##BITS, UnitDownSumParams, MF_READ(0, i32, ids),                     \
            MF_READ(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction),      \
            MF_READ(4, u32, map), MF_READ(5, u64, entries), MF_READ(6, f32, x),                  \
            MF_WRITE(7, f32, out), MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),      \
            MF_WRITE(10, f32, shared_out), MF_READ(11, f32, addend1), MF_READ(12, f32, addend2), \
            MF_WRITE(13, f32, sum0), MF_WRITE(14, f32, sum1), MF_WRITE(15, f32, sum2)) {         \
    MF_THREAD_EARLY;                                                                             \
    static_cast<void>(logits), static_cast<void>(correction);                                    \
    unit_down_splits_and_sum<BITS##u>(t, p, ids, weights, map, entries, x, out, shared_x,        \
                                      shared_gate, shared_out, addend1, addend2, sum0, sum1,     \
                                      sum2);                                                     \
  }
MF_UNIT_DOWN_SPLITS(4)
MF_UNIT_DOWN_SPLITS(8)
#undef MF_UNIT_DOWN_SPLITS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
