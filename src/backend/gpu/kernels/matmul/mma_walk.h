// How a group computes products of single tokens on matrix units. It has tiles of 16 rows and the
// whole row of activations as integers. Its SIMD groups take splits of these tiles in turn and
// prefetch the next ones into shared memory. The first splits are loaded before the activations are
// there.
#pragma once

#include "backend/gpu/kernels/matmul/mma_ggml_part.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Bytes of octet `o`, the 256s or the ones: of two octets the even columns, then the odd ones, or
/// all of both in order.
MF_FN void store_mma_columns(MF_SHARED(u32) to, u32 o, W2 columns, bool in_order) {
  const u32 at = o / 2u * 4u + o % 2u * (in_order ? 2u : 1u);
  to[at] = columns.v[0];
  to[at + (in_order ? 1u : 2u)] = columns.v[1];
}

/// Sums and the factor of block `block`, of which COUNT lanes have a part each.
template <u32 COUNT>
MF_FN void store_mma_sums(MF_T t, MF_SHARED(f32) sums, u32 block, i32 own, f32 factor,
                          bool in_order) {
  const u32 lane = t.lane % COUNT;
  i32 quarter = own;
  MF_UNROLL
  for (u32 step = 1u; step < COUNT / 4u; step *= 2u) quarter = add_lane(t, quarter, step);
  const i32 half = add_lane(t, quarter, COUNT / 4u);
  const i32 sum = add_lane(t, half, COUNT / 2u);
  if (!in_order) {
    if (lane == 0u) {
      sums[block * 2u] = static_cast<f32>(sum);
      sums[block * 2u + 1u] = factor;
    }
    return;
  }
  MF_SHARED(f32) to = sums + block * u32{kGgmlSumWords};
  if (lane % (COUNT / 4u) == 0u) {
    to[kGgmlSumQuarters + lane / (COUNT / 4u)] = static_cast<f32>(quarter);
  }
  if (lane % (COUNT / 2u) == 0u) to[lane / (COUNT / 2u)] = static_cast<f32>(half);
  if (lane == 0u) to[kGgmlSumFactor] = factor;
}

/// Columns that are octet `o` of all those in `shared`: of each block the 256s of 8 octets, then
/// their ones; and sums and factors. Eight lanes bring a block.
MF_FN void store_mma_octet(MF_T t, MF_LOCAL(const f32) values, u32 o, MmaOneShared shared) {
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, shared.sums * 4u);
  const UnitFactor factor = unit_factor(lanes_max<8u>(t, largest_bits<8u>(values)));
  const MmaOctet octet = mma_octet(values, factor.into, shared.in_order);
  MF_SHARED(u32) to = MF_SHARED_AT(t, u32, shared.integers * 4u) + o / 8u * kMmaBlockWords;
  store_mma_columns(to, o % 8u, octet.high, shared.in_order);
  store_mma_columns(to + kMmaBlockWords / 2u, o % 8u, octet.low, shared.in_order);
  store_mma_sums<8u>(t, sums, o / 8u, octet.sum, factor.out_of, shared.in_order);
}

/// The zeros, and the grid of a type that has one: before a barrier.
template <u32 BITS>
MF_FN void store_mma_constants(MF_T t, u32 bits, MmaOneShared shared) {
  if (t.index < kMmaZeroWords) MF_SHARED_AT(t, u32, shared.zeros * 4u)[t.index] = 0u;
  MmaPart<BITS>::place_grid(t, bits);
}

/// Octets `o` and `o` + `step` of those of a row of so many splits, both on their way at once.
MF_FN void stage_mma_octets(MF_T t, MmaWalk walk, MF_GLOBAL(const f32) x, u32 o, u32 step, u32 cols,
                            u32 wide) {
  const MmaOneShared shared = mma_one_shared(walk, walk.splits);
  const u32 next = o + step;
  f32 values[16];
  load_octet(values, x, o * 8u, cols, wide);
  load_octet(values + 8, x, next * 8u, cols, wide);
  store_mma_octet(t, values, o, shared);
  if (next < walk.splits * (kMmaSplit / 8u)) store_mma_octet(t, values + 8, next, shared);
}

/// A group's tiles.
struct MmaTiles {
  u32 first;
  u32 end;
};
/// So many of each of the first `full` groups, one less of the others.
MF_FN MmaTiles mma_share_tiles(u32 most, u32 full, u32 group, u32 all) {
  MmaTiles tiles;
  tiles.first = group * most - (group > full ? group - full : 0u);
  tiles.end = tiles.first + most - (group < full ? 0u : 1u);
  if (tiles.end > all) tiles.end = all;
  return tiles;
}
MF_FN MmaTiles mma_tiles(MmaWalk walk, u32 group, u32 all) {
  return mma_share_tiles(walk.tiles, walk.full, group, all);
}

/// A split of a tile of the group's.
struct MmaCursor {
  u32 tile;
  u32 split;

  /// The SIMD group's first, past all tiles if it takes none.
  MF_FN_MEMBER void begin(MF_T t, MmaWalk walk, MmaTiles tiles) {
    tile = t.simd < walk.simds ? tiles.first : tiles.end;
    split = t.simd;
    while (split >= walk.splits) {
      split -= walk.splits;
      ++tile;
    }
  }
  MF_FN_MEMBER void advance(MmaWalk walk) {
    tile += walk.tile_step;
    split += walk.split_step;
    if (split >= walk.splits) {
      split -= walk.splits;
      ++tile;
    }
  }
};

/// A row of activations in memory.
struct MmaMemoryRow {
  MF_GLOBAL(const f32) x;
  u32 cols;
  u32 wide;

  MF_FN_MEMBER void stage_split(MF_T t, MmaWalk walk, u32 split) const {
    stage_mma_octets(t, walk, x, split * (kMmaSplit / 8u) + t.lane, 32u, cols, wide);
  }
  MF_FN_MEMBER void stage(MF_T t, MmaWalk walk) const {
    for (u32 o = t.index; o < walk.splits * (kMmaSplit / 8u); o += 2u * t.threads) {
      stage_mma_octets(t, walk, x, o, t.threads, cols, wide);
    }
  }
};

/// Where a SIMD group's copies arrive, in words of shared memory.
template <u32 BITS>
MF_FN u32 mma_place_at(MF_T t, MmaWalk walk, u32 place) {
  return walk.begin + (t.simd * walk.places + place) * MmaPart<BITS>::words(walk);
}
/// The sums of the splits of a batch of tiles; of batches in turn.
MF_FN MF_SHARED(f32) mma_batch_parts(MF_T t, MmaWalk walk, u32 batch) {
  return MF_SHARED_AT(
      t, f32,
      (mma_one_shared(walk, walk.splits).parts + batch * walk.batch * walk.splits * kMmaRows) * 4u);
}

/// A SIMD group on its way over a group's tiles.
template <u32 BITS>
struct MmaWalker {
  MmaPart<BITS> part;
  MmaWalk walk;
  MmaTiles tiles;
  MmaCursor next;  // to be asked for

  MF_FN_MEMBER u32 place_at(MF_T t, u32 place) const { return mma_place_at<BITS>(t, walk, place); }
  MF_FN_MEMBER void issue(MF_T t, u32 place) {
    if (next.tile < tiles.end) part.issue(t, place_at(t, place), next.tile, next.split);
    copies_commit(t);
    next.advance(walk);
  }
  /// Brings the first splits under way.
  MF_FN_MEMBER void begin(MF_T t) {
    store_mma_constants<BITS>(t, part.format(), mma_one_shared(walk, walk.splits));
    next.begin(t, walk, tiles);
    MF_UNROLL
    for (u32 place = 0u; place < kMmaPlaces; ++place) issue(t, place);
  }

  /// Stages the row of activations; then all sums: a batch of tiles after the other goes to `sink`,
  /// while others have the next one. SIMD groups need not wait for each other in between.
  template <class Source, class Sink>
  MF_FN_MEMBER void run(MF_T t, MF_LOCAL(const Source) source, MF_LOCAL(const Sink) sink) {
    bool stages = walk.by_splits != 0u;
    if (!stages) source->stage(t, walk);
    barrier(t);  // constants are there too
    MmaCursor now;
    now.begin(t, walk, tiles);
    u32 place = 0u;
    u32 batch = 0u;  // the place of its sums
    u32 done = tiles.first;
    MF_ROLLED
    while (done < tiles.end) {
      const u32 batch_end = tiles.end - done < walk.batch ? tiles.end : done + walk.batch;
      // First all splits of one tile, if they are staged on the way.
      const u32 end = stages ? done + 1u : batch_end;
      MF_SHARED(f32) parts = mma_batch_parts(t, walk, batch);
      MF_ROLLED
      while (now.tile < end) {
        if (stages) source->stage_split(t, walk, now.split);
        copies_wait<kMmaPlaces - 1u>(t);
        simd_barrier(t);
        part.multiply(t, place_at(t, place), now.split, mma_one_shared(walk, walk.splits),
                      parts + ((now.tile - done) * walk.splits + now.split) * kMmaRows);
        simd_barrier(t);
        issue(t, place);
        place = place + 1u == kMmaPlaces ? 0u : place + 1u;
        now.advance(walk);
      }
      barrier(t);
      stages = false;
      if (end < batch_end) continue;
      sink->take(t, parts, walk.splits, done, end - done);
      batch = 1u - batch;
      done = end;
    }
  }
};

/// The sum of a row's splits, in order.
MF_FN f32 sum_mma_splits(MF_SHARED(f32) parts, u32 splits) {
  f32 sum = 0.0f;
  for (u32 first = 0u; first < splits; first += kMmaSimds) {
    f32 held[kMmaSimds];
    MF_UNROLL
    for (u32 s = 0u; s < kMmaSimds; ++s) {  // no branch: all on their way together
      held[s] = parts[(first + s < splits ? first + s : 0u) * kMmaRows];
    }
    MF_UNROLL
    for (u32 s = 0u; s < kMmaSimds; ++s) sum = first + s < splits ? sum + held[s] : sum;
  }
  return sum;
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
