// A group's tiles of all experts of a token, as one list: first those of the shared expert, whose
// weights are known before anything else is there, then those of the slots, one behind another.
// Groups share both lists, so that all read while routes are chosen, and all end together.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// A group's share. Positions count its tiles, those of the shared expert first.
struct UnitExpertShare {
  u32 each;          // tiles of an expert
  u32 shared;        // of the shared expert's so many are the group's,
  u32 shared_first;  // from this one on,
  u32 first;         // and of all slots' from this one on;
  u32 end;           // so many in all
};
MF_FN UnitExpertShare expert_share(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, u32 tile_rows) {
  const u32 each = (p.expert.matrix.rows + tile_rows - 1u) / tile_rows;
  const u32 of_shared = p.shared[0].data != 0u ? each : 0u;
  const UnitTiles all = unit_tiles(p.expert.walk, t.group.x, of_shared + p.expert.top_k * each);
  const UnitTiles own = unit_share_tiles(p.shared_tiles, p.shared_full, t.group.x, of_shared);
  const UnitExpertShare share = {each, own.end - own.first, own.first, all.first - own.first,
                                 all.end - all.first};
  return share;
}

/// The part of a share that is of one expert.
struct UnitStretch {
  u32 row;     // of the group's rows of activations, where experts have their own
  u32 rank;    // of the slot; kNoEntry: the shared expert
  u32 end;     // the position behind it
  u32 offset;  // from positions to the expert's tiles
};
MF_FN UnitStretch first_stretch(UnitExpertShare share) {
  const UnitStretch stretch = {0u, kNoEntry, share.shared, share.shared_first};
  return stretch;
}
MF_FN UnitStretch next_stretch(UnitExpertShare share, UnitStretch before) {
  const bool starts = before.rank == kNoEntry;
  const u32 rank = starts ? share.first / share.each : before.rank + 1u;
  const u32 tile = starts ? share.first - rank * share.each : 0u;
  const u32 end = before.end + share.each - tile;
  const UnitStretch stretch = {starts && share.shared == 0u ? 0u : before.row + 1u, rank,
                               end < share.end ? end : share.end, tile - before.end};
  return stretch;
}

/// Rows of activations of which experts have their own, from the first stretch on.
struct UnitExpertRows {
  MF_GLOBAL(const f32) x;  // of the token's first slot
  u64 stride;
  MF_GLOBAL(const f32) shared_x;
  u32 cols;
  u32 wide;

  MF_FN_MEMBER void stage(MF_T t, UnitWalk walk, UnitExpertShare share) const {
    const u32 octets = walk.splits * (kUnitSplit / 8u);
    const u32 ranks = share.first / share.each;
    const u32 has_shared = share.shared == 0u ? 0u : 1u;
    u32 rows = has_shared;
    if (share.end > share.shared) {
      rows += (share.first + (share.end - share.shared) - 1u) / share.each - ranks + 1u;
    }
    for (u32 o = t.index; o < rows * octets; o += 2u * t.threads) {
      f32 values[16];
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        const u32 at = o + i * t.threads;
        const u32 row = at / octets;
        MF_GLOBAL(const f32) from = shared_x;
        if (row >= has_shared && row < rows) from = x + (ranks + row - has_shared) * stride;
        load_octet(values + 8u * i, from, (at - row * octets) * 8u, row < rows ? cols : 0u, wide);
      }
      store_unit_octet(t, values, o, walk.staged);
      if (o + t.threads < rows * octets) store_unit_octet(t, values + 8, o + t.threads, walk.staged);
    }
  }
};

/// A SIMD group on its way over a group's share. Finder: finds an expert's matrices.
template <u32 BITS, class Finder>
struct UnitExpertWalker {
  Finder finder;
  UnitExpertShare share;
  UnitWalk walk;
  UnitPart<BITS> part;  // of the stretch that is asked for
  UnitStretch stretch;
  bool exists;
  UnitCursor next;  // to be asked for
  u32 filled;       // places

  MF_FN_MEMBER u32 place_at(MF_T t, u32 place) const {
    return walk.begin + (t.simd * walk.places + place) * static_cast<u32>(UnitPart<BITS>::kWords);
  }
  MF_FN_MEMBER void issue(MF_T t, u32 place) {
    if (next.tile < share.end) {
      if (next.tile >= stretch.end) {
        while (next.tile >= stretch.end) stretch = next_stretch(share, stretch);
        exists = finder.find(t, &part, stretch.rank);
      }
      if (exists) part.issue(t, place_at(t, place), next.tile + stretch.offset, next.split);
    }
    copies_commit(t);
    next.advance(walk);
  }
  /// Brings the first splits under way, as far as they are before position `end`; kUnitAll: all.
  MF_FN_MEMBER void fill(MF_T t, u32 end) {
    MF_ROLLED
    while (filled < kUnitPlaces && next.tile < end) {
      issue(t, filled);
      ++filled;
    }
  }
  MF_FN_MEMBER void begin(MF_T t) {
    store_unit_zeros(t, walk.staged);
    const UnitTiles tiles = {0u, share.end};
    next.begin(t, walk, tiles);
    exists = share.shared != 0u && finder.find(t, &part, stretch.rank);
    fill(t, share.shared);
  }
  /// All sums, with the row of activations staged and a barrier behind it: a batch of tiles of one
  /// expert after the other goes to `sink`.
  template <class Sink>
  MF_FN_MEMBER void run(MF_T t, MF_LOCAL(Sink) sink) {
    UnitCursor now;
    const UnitTiles tiles = {0u, share.end};
    now.begin(t, walk, tiles);
    UnitStretch at = first_stretch(share);
    bool is_there = sink->begin(t, at.rank);
    u32 place = 0u;
    u32 batch = 0u;  // the place of its sums
    u32 done = 0u;
    bool asks = t.simd == 0u;
    MF_ROLLED
    while (done < share.end) {
      if (done >= at.end) {
        while (done >= at.end) at = next_stretch(share, at);
        is_there = sink->begin(t, at.rank);
      }
      const u32 end = at.end - done < walk.batch ? at.end : done + walk.batch;
      MF_SHARED(f32)
      parts = MF_SHARED_AT(
          t, f32,
          (unit_one_shared(walk.staged).parts + batch * walk.batch * walk.splits * kUnitRows) * 4u);
      const u32 staged = walk.staged == walk.splits ? 0u : at.row * walk.splits;
      MF_ROLLED
      while (now.tile < end) {
        copies_wait<kUnitPlaces - 1u>(t);
        simd_barrier(t);
        if (is_there) {
          part.multiply(t, place_at(t, place), staged + now.split, walk.staged,
                        parts + ((now.tile - done) * walk.splits + now.split) * kUnitRows);
        }
        simd_barrier(t);
        issue(t, place);
        if (asks && next.tile >= share.end) {
          asks = false;
          sink->finish(t);
        }
        place = place + 1u == kUnitPlaces ? 0u : place + 1u;
        now.advance(walk);
      }
      barrier(t);
      if (is_there) sink->take(t, parts, walk.splits, done + at.offset, end - done);
      batch = 1u - batch;
      done = end;
    }
  }
};

/// `anything` stands where there is no expert.
template <u32 BITS, class Finder>
MF_FN UnitExpertWalker<BITS, Finder> unit_expert_walker(MF_T t, MF_PARAMS(UnitExpertsOneParams) p,
                                                        Finder finder, u32 tile_rows,
                                                        MF_GLOBAL(const f32) anything) {
  MF_PARAMS(UnitExpertParams) e = p.expert;
  MF_GLOBAL(const u8) bytes = MF_CAST(const u8, anything);
  const UnitPart<BITS> nothing = {e.matrix, e.cols, tile_rows, bytes, bytes, bytes};
  const UnitExpertShare share = expert_share(t, p, tile_rows);
  const UnitExpertWalker<BITS, Finder> walker = {finder, share, e.walk, nothing, first_stretch(share), false, {0u, 0u}, 0u};
  return walker;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
