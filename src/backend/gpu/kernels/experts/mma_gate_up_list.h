// Gate and up of all experts of a token as one list of tiles: first those of the shared expert,
// whose weights are known before anything else is there, then those of the slots, one behind
// another. Groups share both, so that all have something to read while routes are chosen, and end
// together. For experts so large that groups are persistent.
#pragma once

#include "backend/gpu/kernels/experts/mma_experts_t1.h"
#include "backend/gpu/kernels/experts/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_walk.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/group_choice.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A group's share. Positions count its tiles, those of the shared expert first.
struct MmaListShare {
  u32 each;          // tiles of an expert
  u32 shared;        // how many of the shared expert's tiles are the group's
  u32 shared_first;  // the first of these
  u32 base;          // position i of the slots' tiles is tile i + base, modulo 2^32
  u32 end;           // tiles of the group in all
};
MF_FN MmaListShare mma_list_share(MF_T t, MF_PARAMS(MmaExpertsOneParams) p) {
  const u32 each = (p.expert.matrix.rows + kMmaRows / 2u - 1u) / (kMmaRows / 2u);
  const MmaTiles all = mma_tiles(p.expert.walk, t.group.x, (p.expert.top_k + 1u) * each);
  const MmaTiles own = mma_share_tiles(p.list.shared_tiles, p.list.shared_full, t.group.x, each);
  const MmaListShare share = {each, own.end - own.first, own.first, all.first - own.end,
                              all.end - all.first};
  return share;
}
MF_FN u32 first_rank(MmaListShare share) { return (share.shared + share.base) / share.each; }
/// Experts that the group has tiles of.
MF_FN u32 count_experts(MmaListShare share) {
  const u32 shared = share.shared == 0u ? 0u : 1u;
  if (share.end == share.shared) return shared;
  return shared + (share.end + share.base - 1u) / share.each - first_rank(share) + 1u;
}

/// The entry of an expert of which a group has tiles, in shared memory.
enum : u32 {
  kListEnd,       // the position behind its tiles
  kListOffset,    // from positions to its tiles, modulo 2^32
  kListRank,      // of the slot; kNoEntry: the shared expert
  kListExists,    // or nothing is there to multiply
  kListMatrices,  // gate and up, an ExpertMatrix each
  kListMatrixWords = 8,
};
static_assert(kListMatrices + 2 * kListMatrixWords == static_cast<u32>(kMmaListWords),
              "plans make room for it");

MF_FN MF_SHARED(u32) mma_list_entry(MF_T t, MF_PARAMS(MmaExpertsOneParams) p, u32 i) {
  return MF_SHARED_AT(t, u32, (p.list.table + i * kMmaListWords) * 4u);
}
MF_FN void store_address(MF_SHARED(u32) to, u64 address) {
  to[0] = static_cast<u32>(address);
  to[1] = static_cast<u32>(address >> 32u);
}
MF_FN u64 load_address(MF_SHARED(u32) from) {
  const W2 words = load2(from);
  return words.v[0] | static_cast<u64>(words.v[1]) << 32u;
}

/// Writes the entries of the group's experts, a thread each. Has a barrier.
MF_FN void list_experts(MF_T t, MF_PARAMS(MmaExpertsOneParams) p, MmaListShare share,
                        MmaChoice choice) {
  const u32 before = share.shared == 0u ? 0u : 1u;
  for (u32 i = t.index; i < count_experts(share); i += t.threads) {
    const bool is_shared = i < before;
    const u32 rank = first_rank(share) + i - before;
    MmaSlot slot;
    slot.exists = true;
    slot.matrices[0] = p.shared[0];
    slot.matrices[1] = p.shared[1];
    if (!is_shared) {
      const u32 id = p.route.thread_experts != 0u ? route_chosen(route_words(t, p), rank)
                                                  : static_cast<u32>(choice.ids[rank]);
      find_expert(p, &slot, id, choice, 0u, 2u);
    }
    const u32 end = is_shared ? share.shared : (rank + 1u) * share.each - share.base;
    MF_SHARED(u32) to = mma_list_entry(t, p, i);
    to[kListEnd] = end < share.end ? end : share.end;
    to[kListOffset] = is_shared ? share.shared_first : share.base - rank * share.each;
    to[kListRank] = is_shared ? static_cast<u32>(kNoEntry) : rank;
    to[kListExists] = slot.exists ? 1u : 0u;
    MF_UNROLL
    for (u32 m = 0u; m < 2u; ++m) {
      MF_SHARED(u32) matrix = to + (kListMatrices + m * kListMatrixWords);
      store_address(matrix, slot.matrices[m].data);
      store_address(matrix + 2, slot.matrices[m].scales);
      store_address(matrix + 4, slot.matrices[m].biases);
      store_address(matrix + 6, slot.matrices[m].bias);
    }
  }
  barrier(t);
}

/// out = gated_unit(gate x + bias, up x + bias), of any of a token's experts.
struct MmaListOut {
  MF_PARAMS(MmaExpertsOneParams) p;
  MF_GLOBAL(f32) slots;
  MF_GLOBAL(f32) shared;

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(u32) expert, MF_SHARED(f32) parts, u32 splits,
                         u32 first_tile, u32 tiles) const {
    const u32 rank = expert[kListRank];
    MmaGateUpOut own = {slots, load_address(expert + (kListMatrices + 6u)),
                        load_address(expert + (kListMatrices + kListMatrixWords + 6u)), p.expert};
    own.out = rank == kNoEntry ? shared : slots + rank * p.expert.out_stride;
    own.take(t, parts, splits, first_tile, tiles);
  }
};

/// A SIMD group on its way over a group's share.
template <u32 BITS>
struct MmaListWalker {
  MF_PARAMS(MmaExpertsOneParams) p;
  MmaPart<BITS> part;  // of the expert that is asked for,
  u32 expert;          // which of the group's that is,
  u32 end;             // and where its tiles end
  u32 offset;
  bool exists;
  u32 all;         // positions
  MmaCursor next;  // to be asked for
  u32 filled;      // places

  MF_FN_MEMBER u32 place_at(MF_T t, u32 place) const {
    return mma_place_at<BITS>(t, p.expert.walk, place);
  }
  MF_FN_MEMBER void enter(MF_T t) {
    MF_SHARED(u32) at = mma_list_entry(t, p, expert);
    end = at[kListEnd];
    offset = at[kListOffset];
    exists = at[kListExists] != 0u;
    if (!exists) return;
    MF_SHARED(u32) gate = at + kListMatrices;
    MF_SHARED(u32) up = gate + kListMatrixWords;
    MF_SHARED(u32) own = t.lane < 16u ? gate : up;
    part.move(t, load_address(gate), load_address(up),
              load_address(own + ((t.lane & 1u) == 0u ? 2u : 4u)));
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
    next.advance(p.expert.walk);
  }
  /// Brings the first splits under way, as far as they are before position `stop`.
  MF_FN_MEMBER void fill(MF_T t, u32 stop) {
    MF_ROLLED
    while (filled < kMmaPlaces && next.tile < stop) {
      issue(t, filled);
      ++filled;
    }
  }
  /// All sums, with the row of activations and the list in shared memory: a batch of tiles of one
  /// expert after the other goes to `sink`.
  MF_FN_MEMBER void run(MF_T t, MF_LOCAL(const MmaListOut) sink) {
    const MmaWalk walk = p.expert.walk;
    const MmaTiles tiles = {0u, all};
    MmaCursor now;
    now.begin(t, walk, tiles);
    u32 place = 0u;
    u32 batch = 0u;  // the place of its sums
    u32 done = 0u;
    u32 i = 0u;
    MF_ROLLED
    while (done < all) {
      MF_SHARED(u32) at = mma_list_entry(t, p, i);
      const u32 of_expert = at[kListEnd];
      const bool is_there = at[kListExists] != 0u;
      const u32 stop = of_expert - done < walk.batch ? of_expert : done + walk.batch;
      MF_SHARED(f32) parts = mma_batch_parts(t, walk, batch);
      MF_ROLLED
      while (now.tile < stop) {
        copies_wait<kMmaPlaces - 1u>(t);
        simd_barrier(t);
        if (is_there) {
          part.multiply(t, place_at(t, place), now.split, mma_one_shared(walk, walk.splits),
                        parts + ((now.tile - done) * walk.splits + now.split) * kMmaRows);
        }
        simd_barrier(t);
        issue(t, place);
        place = place + 1u == kMmaPlaces ? 0u : place + 1u;
        now.advance(walk);
      }
      barrier(t);
      if (is_there) sink->take(t, at, parts, walk.splits, done + at[kListOffset], stop - done);
      batch = 1u - batch;
      done = stop;
      if (stop == of_expert) ++i;
    }
  }
};

/// With the shared expert's first splits under way, as far as they are the group's.
template <u32 BITS>
MF_FN MmaListWalker<BITS> begin_mma_list(MF_T t, MF_PARAMS(MmaExpertsOneParams) p,
                                         MmaListShare share) {
  const bool exists = share.shared != 0u;
  MmaListWalker<BITS> walker = {p,
                                mma_gate_up_part<BITS>(t, p.expert, p.shared[0], p.shared[1]),
                                exists ? 0u : ~0u,
                                share.shared,
                                share.shared_first,
                                exists,
                                share.end,
                                {0u, 0u},
                                0u};
  const MmaTiles tiles = {0u, share.end};
  store_mma_constants<BITS>(t, p.expert.matrix.bits,
                            mma_one_shared(p.expert.walk, p.expert.walk.splits));
  walker.next.begin(t, p.expert.walk, tiles);
  walker.fill(t, share.shared);
  return walker;
}

/// A row of activations, staged by the threads from `first` on.
struct MmaRowBeside {
  MmaMemoryRow row;
  u32 first;
  MmaWalk walk;
  MF_FN_MEMBER void run(MF_T t) const {
    const u32 step = t.threads - first;
    for (u32 o = t.index - first; o < walk.splits * (kMmaSplit / 8u); o += 2u * step) {
      stage_mma_octets(t, walk, row.x, o, step, row.cols, row.wide);
    }
  }
};

/// `choice` and `routes` are of all tokens.
template <u32 BITS>
MF_FN void mma_gate_up_of_token(MF_T t, MF_PARAMS(MmaExpertsOneParams) p, MmaChoice choice,
                                MmaRoutes routes, MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out,
                                MF_GLOBAL(f32) shared_out) {
  MF_PARAMS(MmaExpertParams) e = p.expert;
  const u32 token = t.group.y;
  const u64 slot = static_cast<u64>(token) * e.top_k;
  const MmaListShare share = mma_list_share(t, p);
  MmaListWalker<BITS> walker = begin_mma_list<BITS>(t, p, share);
  choice.ids = choice.ids + slot;
  choice.logits = choice.logits + token * p.route.logits_stride;
  const bool chooses = p.route.thread_experts != 0u;
  // Threads that choose no routes have time for the row of activations.
  const bool has_others = chooses && t.threads > kRouteThreads;
  const MmaRowBeside row = {{x + token * e.x_stride, e.cols, e.wide},
                            has_others ? static_cast<u32>(kRouteThreads) : 0u,
                            e.walk};
  await_inputs(t);
  if (chooses) {
    route_choose_beside(t, p.route, p.route.top_k, route_words(t, p), choice.logits,
                        choice.correction, &row);
    barrier(t);
  }
  list_experts(t, p, share, choice);
  walker.fill(t, ~0u);
  if (!has_others) {
    row.run(t);
    barrier(t);
  }
  const MmaListOut sink = {p, out + slot * e.out_stride, shared_out + token * p.shared_out_stride};
  walker.run(t, &sink);
  if (!chooses || t.group.x != p.list.writer) return;
  route_write(t, p.route, token, route_words(t, p), choice.logits, routes.expert_scale, routes.ids,
              routes.weights);
}

// Group x: a share of the tiles; y: a token. A group has a multiprocessor for itself.
#define MF_MMA_LIST(name, BITS, threads)                                                         \
  MF_FITS(threads, 1)                                                                            \
  MF_KERNEL(name, MmaExpertsOneParams, MF_WRITE(0, i32, ids), MF_WRITE(1, f32, weights),         \
            MF_READ(2, f32, logits), MF_READ(3, f32, correction), MF_READ(4, f32, expert_scale), \
            MF_READ(5, u32, map), MF_READ(6, u64, entries), MF_READ(7, f32, x),                  \
            MF_WRITE(8, f32, out), MF_WRITE(9, f32, shared_out)) {                               \
    MF_THREAD_EARLY;                                                                             \
    const MmaChoice choice = {MF_CAST(const i32, ids), logits, correction, map, entries};        \
    const MmaRoutes routes = {expert_scale, ids, weights};                                       \
    mma_gate_up_of_token<BITS>(t, p, choice, routes, x, out, shared_out);                        \
  }
MF_MMA_LIST(mma_gate_up_list_w4_t1, 4u, kMmaThreadsMax)
MF_MMA_LIST(mma_gate_up_list_ggml_t1, kMmaGgml, kMmaThreadsMax)
#define MF_MMA_KNOWN_LIST(X, type) \
  MF_MMA_LIST(mma_gate_up_list_##type##_t1, kGgml_##type, kMmaKnownThreads)
MF_GGML_ONE_TYPES(MF_MMA_KNOWN_LIST, )
#undef MF_MMA_KNOWN_LIST
#undef MF_MMA_LIST

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
