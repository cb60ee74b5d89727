// The experts of single tokens on matrix units: a slot reads its expert by itself, and so does each
// token the shared expert, whose weights are known before anything else is there. Where routes have
// not been chosen yet each SIMD group finds its slot's expert from the logits, which takes less
// time than waiting for another launch.
#pragma once

#include "backend/gpu/kernels/experts/experts.h"
#include "backend/gpu/kernels/experts/mma_params.h"
#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_part.h"
#include "backend/gpu/kernels/matmul/mma_walk.h"
#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/group_choice.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Tiles of an expert's matrix.
template <u32 BITS>
MF_FN MmaPart<BITS> mma_down_part(MF_T t, MF_PARAMS(MmaExpertParams) p, ExpertMatrix from) {
  return MmaPart<BITS>::of_halves(t, p.matrix, p.cols, kMmaRows, from.data, from.data,
                                  (t.lane & 1u) == 0u ? from.scales : from.biases);
}

/// Tiles of 8 rows of gate above those of up.
template <u32 BITS>
MF_FN MmaPart<BITS> mma_gate_up_part(MF_T t, MF_PARAMS(MmaExpertParams) p, ExpertMatrix gate,
                                     ExpertMatrix up) {
  const bool is_gate = t.lane < 16u;
  const u64 scales = is_gate ? gate.scales : up.scales;
  const u64 biases = is_gate ? gate.biases : up.biases;
  return MmaPart<BITS>::of_halves(t, p.matrix, p.cols, kMmaRows / 2u, gate.data, up.data,
                                  (t.lane & 1u) == 0u ? scales : biases);
}

/// Expert `id` where experts lie evenly.
MF_FN ExpertMatrix expert_at(ExpertMatrix first, u64 offset) {
  first.data += offset;
  first.scales += offset;
  first.biases += offset;
  first.bias = first.bias == 0u ? first.bias : first.bias + offset;
  return first;
}

/// A division takes a hundred cycles; the first token needs none.
MF_FN u32 token_of(u32 slot, u32 top_k) { return slot < top_k ? 0u : slot / top_k; }

/// A group's work: rows of one expert for one row of x.
struct MmaSlot {
  ExpertMatrix matrices[2];  // gate and up, or down
  bool is_shared;
  bool exists;
};

/// How slots find their experts: chosen ids or the logits that choose them, then where experts lie.
struct MmaChoice {
  MF_GLOBAL(const i32) ids;
  MF_GLOBAL(const f32) logits;
  MF_GLOBAL(const f32) correction;
  MF_GLOBAL(const u32) map;
  MF_GLOBAL(const u64) entries;
};

/// Where routes that are chosen here are written down.
struct MmaRoutes {
  MF_GLOBAL(const f32) expert_scale;
  MF_GLOBAL(i32) ids;
  MF_GLOBAL(f32) weights;
};

/// The shared expert's own inputs and outputs.
struct MmaSharedRows {
  MF_GLOBAL(const f32) x;
  MF_GLOBAL(const f32) gate;
  MF_GLOBAL(f32) out;
};

/// The matrices of the expert that slot `t.group.y` goes to, from matrix `which` of its entry.
MF_FN void find_expert(MF_PARAMS(MmaExpertsOneParams) p, MF_LOCAL(MmaSlot) slot, u32 id,
                       MmaChoice choice, u32 which, u32 count) {
  slot->exists = id < p.expert.ids;
  if (!slot->exists) return;
  if (p.stride != 0u) {
    MF_UNROLL
    for (u32 i = 0u; i < 2u; ++i) {
      if (i < count) slot->matrices[i] = expert_at(p.first[i], id * p.stride);
    }
    return;
  }
  const u32 entry = choice.map[id];
  slot->exists = entry != kNoEntry;
  if (!slot->exists) return;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    if (i < count) slot->matrices[i] = expert_matrix(choice.entries, entry, which + i);
  }
}

MF_FN MmaSlot shared_slot(MF_T t, MF_PARAMS(MmaExpertsOneParams) p) {
  MmaSlot slot;
  slot.is_shared = t.group.y >= p.slots;
  slot.exists = slot.is_shared;
  slot.matrices[0] = p.shared[0];
  slot.matrices[1] = p.shared[1];
  return slot;
}

MF_FN MF_SHARED(u32) route_words(MF_T t, MF_PARAMS(MmaExpertsOneParams) p) {
  return MF_SHARED_AT(t, u32, p.expert.walk.more * 4u);
}

template <u32 BITS>
MF_FN MmaWalker<BITS> mma_expert_walker(MF_T t, MF_PARAMS(MmaExpertParams) p, MmaPart<BITS> part) {
  const u32 all = (p.matrix.rows + part.tile_rows() - 1u) / part.tile_rows();
  const MmaWalker<BITS> walker = {part, p.walk, mma_tiles(p.walk, t.group.x, all), {0u, 0u}};
  return walker;
}

/// out = gated_unit(gate x + bias, up x + bias).
struct MmaGateUpOut {
  MF_GLOBAL(f32) out;
  u64 gate_bias;
  u64 up_bias;
  MF_PARAMS(MmaExpertParams) p;

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(f32) parts, u32 splits, u32 first_tile,
                         u32 tiles) const {
    const u32 half = kMmaRows / 2u;
    for (u32 r = t.index; r < tiles * half; r += t.threads) {
      const u32 row = first_tile * half + r;
      if (row >= p.matrix.rows) return;
      MF_SHARED(f32) own = parts + (r / half * splits * kMmaRows + r % half);
      out[row] =
          gated_unit(sum_mma_splits(own, splits) + bias_at(t, gate_bias, row, p.bias_format),
                     sum_mma_splits(own + half, splits) + bias_at(t, up_bias, row, p.bias_format),
                     p.activation, p.alpha, p.limit, p.up_offset);
    }
  }
};

/// Gate and up of one slot. Awaits the shared expert's inputs; those of other slots have been
/// awaited.
template <u32 BITS>
MF_FN void mma_gate_up_of_one(MF_T t, MF_PARAMS(MmaExpertParams) p, MmaSlot slot,
                              MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  MmaWalker<BITS> walker = mma_expert_walker<BITS>(
      t, p, mma_gate_up_part<BITS>(t, p, slot.matrices[0], slot.matrices[1]));
  walker.begin(t);
  if (slot.is_shared) await_inputs(t);
  const MmaMemoryRow row = {x, p.cols, p.wide};
  const MmaGateUpOut sink = {out, slot.matrices[0].bias, slot.matrices[1].bias, p};
  walker.run(t, &row, &sink);
}

template <u32 BITS>
MF_FN void mma_gate_up_of_slot(MF_T t, MF_PARAMS(MmaExpertsOneParams) p, MmaChoice choice,
                               MmaRoutes routes, MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out,
                               MF_GLOBAL(f32) shared_out) {
  MmaSlot slot = shared_slot(t, p);
  u32 token = t.group.y - p.slots;
  MF_GLOBAL(const f32) from = x + token * p.shared_x_stride;
  MF_GLOBAL(f32) to = shared_out + token * p.shared_out_stride;
  // The shared expert writes the weights of routes, if there is one: it need not wait for routes
  // and has time.
  const bool has_shared = p.shared[0].data != 0u;
  bool writes = slot.is_shared && p.route.thread_experts != 0u && t.group.x == 0u;
  if (!slot.is_shared) {
    await_inputs(t);
    token = token_of(t.group.y, p.expert.top_k);
    const u32 rank = t.group.y - token * p.expert.top_k;
    u32 id = 0u;
    if (p.route.thread_experts != 0u) {
      id = route_slot(t, p.route, token, rank, route_words(t, p), choice.logits, choice.correction);
      writes = t.group.x == 0u && rank == 0u && !has_shared;
    } else {
      id = static_cast<u32>(choice.ids[t.group.y]);
    }
    find_expert(p, &slot, id, choice, 0u, 2u);
    from = x + token * p.expert.x_stride;
    to = out + t.group.y * p.expert.out_stride;
  }
  if (slot.exists) mma_gate_up_of_one<BITS>(t, p.expert, slot, from, to);
  if (!writes) return;
  if (slot.is_shared) {
    barrier(t);
    (void)route_slot(t, p.route, token, 0u, route_words(t, p), choice.logits, choice.correction);
  }
  route_write(t, p.route, token, route_words(t, p), choice.logits + token * p.route.logits_stride,
              routes.expert_scale, routes.ids, routes.weights);
}

/// out = (down x + bias) * sigmoid(gate).
struct MmaDownOut {
  MF_GLOBAL(f32) out;
  MF_GLOBAL(const f32) gate;
  u64 bias;
  bool has_gate;
  MF_PARAMS(MmaExpertParams) p;

  MF_FN_MEMBER void take(MF_T t, MF_SHARED(f32) parts, u32 splits, u32 first_tile,
                         u32 tiles) const {
    for (u32 r = t.index; r < tiles * kMmaRows; r += t.threads) {
      const u32 row = first_tile * kMmaRows + r;
      if (row >= p.matrix.rows) return;
      f32 sum = sum_mma_splits(parts + (r / kMmaRows * splits * kMmaRows + r % kMmaRows), splits);
      sum = sum + bias_at(t, bias, row, p.bias_format);
      out[row] = has_gate ? sum * sigmoid(gate[0]) : sum;
    }
  }
};

/// Awaits its inputs; weights and routes are there before.
template <u32 BITS>
MF_FN void mma_down_of_one(MF_T t, MF_PARAMS(MmaExpertsOneParams) p, MmaSlot slot,
                           MF_GLOBAL(const f32) x, MF_GLOBAL(const f32) gate, MF_GLOBAL(f32) out) {
  MF_PARAMS(MmaExpertParams) e = p.expert;
  MmaWalker<BITS> walker =
      mma_expert_walker<BITS>(t, e, mma_down_part<BITS>(t, e, slot.matrices[0]));
  walker.begin(t);
  await_inputs(t);
  const MmaMemoryRow row = {x, e.cols, e.wide};
  const MmaDownOut sink = {out, gate, slot.matrices[0].bias,
                           slot.is_shared && p.has_shared_gate != 0u, e};
  walker.run(t, &row, &sink);
}

/// Before the inputs are awaited, this reads ids or the logits from which both kernels choose. They
/// were written before mma_gate_up_t1, which comes right before.
template <u32 BITS>
MF_FN void mma_down_of_slot(MF_T t, MF_PARAMS(MmaExpertsOneParams) p, MmaChoice choice,
                            MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out, MmaSharedRows shared) {
  MmaSlot slot = shared_slot(t, p);
  const u32 token = t.group.y - p.slots;
  MF_GLOBAL(const f32) from = shared.x + token * p.shared_x_stride;
  MF_GLOBAL(f32) to = shared.out + token * p.shared_out_stride;
  if (!slot.is_shared) {
    u32 id = 0u;
    if (p.route.thread_experts != 0u) {
      const u32 routed = token_of(t.group.y, p.route.top_k);
      id = route_slot(t, p.route, routed, t.group.y - routed * p.route.top_k, route_words(t, p),
                      choice.logits, choice.correction);
    } else {
      id = static_cast<u32>(choice.ids[t.group.y]);
    }
    find_expert(p, &slot, id, choice, 2u, 1u);
    if (!slot.exists) {
      await_inputs(t);
      return;
    }
    from = x + t.group.y * p.expert.x_stride;
    to = out + t.group.y * p.expert.out_stride;
  }
  mma_down_of_one<BITS>(t, p, slot, from, shared.gate + token, to);
}

// Group x: tiles of rows; y: the slot. 256 threads or more. A kernel for each width of codes, as
// wide ones need twice the registers, and for some of GGML's types.
#define MF_MMA_EXPERTS_ONE(suffix, BITS, threads, fits)                                      \
  MF_FITS(threads, fits)                                                                     \
  MF_KERNEL(mma_gate_up_##suffix, MmaExpertsOneParams, MF_WRITE(0, i32, ids),                \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction), \
            MF_READ(4, f32, expert_scale), MF_READ(5, u32, map), MF_READ(6, u64, entries),   \
            MF_READ(7, f32, x), MF_WRITE(8, f32, out), MF_WRITE(9, f32, shared_out)) {       \
    MF_THREAD_EARLY;                                                                         \
    const MmaChoice choice = {MF_CAST(const i32, ids), logits, correction, map, entries};    \
    const MmaRoutes routes = {expert_scale, ids, weights};                                   \
    mma_gate_up_of_slot<BITS>(t, p, choice, routes, x, out, shared_out);                     \
  }                                                                                          \
  MF_FITS(threads, fits)                                                                     \
  MF_KERNEL(mma_down_##suffix, MmaExpertsOneParams, MF_READ(0, i32, ids),                    \
            MF_WRITE(1, f32, weights), MF_READ(2, f32, logits), MF_READ(3, f32, correction), \
            MF_READ(4, u32, map), MF_READ(5, u64, entries), MF_READ(6, f32, x),              \
            MF_WRITE(7, f32, out), MF_READ(8, f32, shared_x), MF_READ(9, f32, shared_gate),  \
            MF_WRITE(10, f32, shared_out)) {                                                 \
    MF_THREAD_EARLY;                                                                         \
    static_cast<void>(weights);                                                              \
    const MmaChoice choice = {ids, logits, correction, map, entries};                        \
    const MmaSharedRows shared = {shared_x, shared_gate, shared_out};                        \
    mma_down_of_slot<BITS>(t, p, choice, x, out, shared);                                    \
  }
MF_MMA_EXPERTS_ONE(w4_t1, 4u, kMmaThreadsMax, kMmaFits4 / 2)
MF_MMA_EXPERTS_ONE(w8_t1, 8u, kMmaThreads, kMmaFits8)
MF_MMA_EXPERTS_ONE(ggml_t1, kMmaGgml, kMmaThreadsMax, kMmaFitsGgml / 2)
#define MF_MMA_KNOWN_ONE(X, type) MF_MMA_EXPERTS_ONE(type##_t1, kGgml_##type, kMmaKnownThreads, 1)
MF_GGML_ONE_TYPES(MF_MMA_KNOWN_ONE, )
#undef MF_MMA_KNOWN_ONE
#undef MF_MMA_EXPERTS_ONE

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
