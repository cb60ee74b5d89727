// A group's tiles of all experts of a token, as one list: first those of the shared expert, whose
// weights are known before anything else is there, then those of the slots, one behind another.
// Groups share both lists, so that all read while routes are chosen, and all end together.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// An expert's matrices.
struct UnitSlot {
  ExpertMatrix matrices[2];  // gate and up, or down
  bool is_shared;
  bool exists;
};

/// A group's share. Positions count its tiles, those of the shared expert first.
struct UnitExpertShare {
  u32 each;          // tiles of an expert
  u32 shared;        // of the shared expert's so many are the group's,
  u32 shared_first;  // from this one on;
  u32 base;          // of the slots' tiles, position i is tile i + base, modulo 2^32
  u32 end;           // so many in all
};
MF_FN UnitExpertShare expert_share(MF_T t, MF_PARAMS(UnitExpertsOneParams) p, u32 tile_rows) {
  const u32 each = (p.expert.matrix.rows + tile_rows - 1u) / tile_rows;
  const u32 of_shared = p.shared[0].data != 0u ? each : 0u;
  const UnitTiles all = unit_tiles(p.expert.walk, t.group.x, of_shared + p.expert.top_k * each);
  const UnitTiles own = unit_share_tiles(p.shared_tiles, p.shared_full, t.group.x, of_shared);
  const UnitExpertShare share = {each, own.end - own.first, own.first, all.first - own.end,
                                 all.end - all.first};
  return share;
}

MF_FN u32 first_rank(UnitExpertShare share) { return (share.shared + share.base) / share.each; }
/// Experts that a group has tiles of: so many rows of activations, where experts have their own.
MF_FN u32 experts_of(UnitExpertShare share) {
  const u32 shared = share.shared == 0u ? 0u : 1u;
  if (share.end == share.shared) return shared;
  return shared + (share.end + share.base - 1u) / share.each - first_rank(share) + 1u;
}

/// What a group knows in shared memory of an expert that it has tiles of.
enum : u32 {
  kStretchEnd,     // the position behind its tiles
  kStretchOffset,  // from positions to its tiles, modulo 2^32
  kStretchRank,    // of the slot; kNoEntry: the shared expert
  kStretchExists,
  kStretchMatrices,  // two, as an ExpertMatrix
};
static_assert(u32{kStretchMatrices} + 2u * u32{kUnitMatrixWords} == u32{kUnitStretchWords},
              "plans make room for it");

MF_FN MF_SHARED(u32) unit_stretch(MF_T t, UnitWalk walk, u32 i) {
  return MF_SHARED_AT(t, u32, (walk.experts + i * kUnitStretchWords) * 4u);
}
MF_FN void store_address(MF_SHARED(u32) to, u64 address) {
  to[0] = static_cast<u32>(address);
  to[1] = static_cast<u32>(address >> 32u);
}
MF_FN u64 load_address(MF_SHARED(u32) from) {
  const W2 words = load2(from);
  return words.v[0] | static_cast<u64>(words.v[1]) << 32u;
}
MF_FN void store_matrix(MF_SHARED(u32) to, ExpertMatrix matrix) {
  store_address(to, matrix.data);
  store_address(to + 2, matrix.scales);
  store_address(to + 4, matrix.biases);
  store_address(to + 6, matrix.bias);
}
MF_FN void store_stretch(MF_SHARED(u32) to, UnitExpertShare share, u32 rank, UnitSlot slot) {
  const bool is_shared = rank == kNoEntry;
  const u32 end = is_shared ? share.shared : (rank + 1u) * share.each - share.base;
  to[kStretchEnd] = end < share.end ? end : share.end;
  to[kStretchOffset] = is_shared ? share.shared_first : share.base - rank * share.each;
  to[kStretchRank] = rank;
  to[kStretchExists] = slot.exists ? 1u : 0u;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    store_matrix(to + (kStretchMatrices + i * kUnitMatrixWords), slot.matrices[i]);
  }
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
    const u32 rank = first_rank(share);
    const u32 has_shared = share.shared == 0u ? 0u : 1u;
    const u32 rows = experts_of(share);
    for (u32 o = t.index; o < rows * octets; o += 2u * t.threads) {
      f32 values[16];
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        const u32 at = o + i * t.threads;
        const u32 row = at / octets;
        MF_GLOBAL(const f32) from = shared_x;
        if (row >= has_shared && row < rows) from = x + (rank + row - has_shared) * stride;
        load_octet(values + 8u * i, from, (at - row * octets) * 8u, row < rows ? cols : 0u, wide);
      }
      store_unit_octet(t, values, o, walk.staged);
      if (o + t.threads < rows * octets)
        store_unit_octet(t, values + 8, o + t.threads, walk.staged);
    }
  }
};

/// A SIMD group on its way over a group's share of experts of COUNT matrices: tiles of 8 rows of
/// each of two, or of 16.
template <u32 BITS, u32 COUNT>
struct UnitExpertWalker {
  UnitWalk walk;
  UnitPart<BITS> part;  // of the expert that is asked for
  u32 all;              // positions
  u32 expert;           // which of the group's that is, and where its tiles end
  u32 end;
  u32 offset;
  bool exists;
  UnitCursor next;  // to be asked for
  u32 filled;       // places

  MF_FN_MEMBER u32 place_at(MF_T t, u32 place) const {
    return walk.begin + (t.simd * walk.places + place) * static_cast<u32>(UnitPart<BITS>::kWords);
  }
  MF_FN_MEMBER void enter(MF_T t) {
    MF_SHARED(u32) at = unit_stretch(t, walk, expert);
    end = at[kStretchEnd];
    offset = at[kStretchOffset];
    exists = at[kStretchExists] != 0u;
    if (!exists) return;
    const u32 lower = COUNT == 2u ? u32{kUnitMatrixWords} : 0u;
    MF_SHARED(u32) own = at + (kStretchMatrices + (t.lane < 16u ? 0u : lower));
    part.upper = MF_AT(t, const u8, load_address(at + kStretchMatrices));
    part.lower = MF_AT(t, const u8, load_address(at + (kStretchMatrices + lower)));
    part.scales = MF_AT(t, const u8, load_address(own + ((t.lane & 1u) == 0u ? 2u : 4u)));
  }
  MF_FN_MEMBER void issue(MF_T t, u32 place) {
    if (next.tile < all) {
      if (next.tile >= end) {
        MF_ROLLED
        do {
          ++expert;
          enter(t);
        } while (next.tile >= end);
      }
      if (exists) part.issue(t, place_at(t, place), next.tile + offset, next.split);
    }
    copies_commit(t);
    next.advance(walk);
  }
  /// Brings the first splits under way to `places` places, as far as they are before position
  /// `stop`.
  MF_FN_MEMBER void fill(MF_T t, u32 places, u32 stop) {
    MF_ROLLED
    while (filled < places && next.tile < stop) {
      issue(t, filled);
      ++filled;
    }
  }
  /// All sums, with rows of activations and experts in shared memory: a batch of tiles of one
  /// expert after the other goes to `sink`.
  template <class Sink>
  MF_FN_MEMBER void run(MF_T t, MF_LOCAL(const Sink) sink) {
    UnitCursor now;
    const UnitTiles tiles = {0u, all};
    now.begin(t, walk, tiles);
    u32 place = 0u;
    u32 batch = 0u;  // the place of its sums
    u32 done = 0u;
    u32 i = 0u;
    MF_ROLLED
    while (done < all) {
      MF_SHARED(u32) at = unit_stretch(t, walk, i);
      const u32 of_expert = at[kStretchEnd];
      const bool is_there = at[kStretchExists] != 0u;
      const u32 stop = of_expert - done < walk.batch ? of_expert : done + walk.batch;
      MF_SHARED(f32)
      parts = MF_SHARED_AT(
          t, f32,
          (unit_one_shared(walk.staged).parts + batch * walk.batch * walk.splits * kUnitRows) * 4u);
      const u32 staged = walk.staged == walk.splits ? 0u : i * walk.splits;
      MF_ROLLED
      while (now.tile < stop) {
        copies_wait<kUnitPlaces - 1u>(t);
        simd_barrier(t);
        if (is_there) {
          part.multiply(t, place_at(t, place), staged + now.split, walk.staged,
                        parts + ((now.tile - done) * walk.splits + now.split) * kUnitRows);
        }
        simd_barrier(t);
        issue(t, place);
        place = place + 1u == kUnitPlaces ? 0u : place + 1u;
        now.advance(walk);
      }
      barrier(t);
      if (is_there) {
        sink->take(t, at, parts, walk.splits, done + at[kStretchOffset], stop - done);
      }
      batch = 1u - batch;
      done = stop;
      if (stop == of_expert) ++i;
    }
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
