// Sums of slots or a base and of addends, which may end in a norm.
#pragma once

#include "backend/gpu/kernels/matmul/mma_product.h"
#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/norm/slot_sum.h"
#include "backend/gpu/kernels/norm/sums.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The thread's columns of a row of a chain.
template <u32 VECTORS>
struct ChainColumns {
  F4 v[VECTORS];
};

MF_FN u32 chain_column(MF_T t, u32 v) { return (v * t.threads + t.index) * 4u; }

template <u32 VECTORS>
MF_FN ChainColumns<VECTORS> load_chain(MF_T t, MF_GLOBAL(const f32) row, u32 cols) {
  ChainColumns<VECTORS> columns;
  MF_UNROLL
  for (u32 v = 0u; v < VECTORS; ++v) {
    const u32 c = chain_column(t, v);
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    columns.v[v] = c < cols ? load4(row + c) : nothing;
  }
  return columns;
}

template <u32 VECTORS>
MF_FN void store_chain(MF_T t, MF_GLOBAL(f32) row, u32 cols,
                       MF_LOCAL(const ChainColumns<VECTORS>) columns) {
  MF_UNROLL
  for (u32 v = 0u; v < VECTORS; ++v) {
    const u32 c = chain_column(t, v);
    if (c < cols) store4(row + c, columns->v[v]);
  }
}

template <u32 VECTORS>
MF_FN void add_chain(MF_LOCAL(ChainColumns<VECTORS>) sum,
                     MF_LOCAL(const ChainColumns<VECTORS>) more) {
  MF_UNROLL
  for (u32 v = 0u; v < VECTORS; ++v) sum->v[v] = plus(sum->v[v], more->v[v]);
}

/// Slots of a row, one behind another, as columns of a chain.
template <u32 VECTORS>
struct ChainSlots {
  typedef ChainColumns<VECTORS> Value;
  MF_GLOBAL(const f32) slots;
  MF_GLOBAL(const f32) weights;
  u32 cols;

  MF_FN_MEMBER Value load(MF_T t, u32 rank) const {
    return load_chain<VECTORS>(t, slots + static_cast<u64>(rank) * cols, cols);
  }
  MF_FN_MEMBER f32 weight(MF_T, u32 rank) const { return weights[rank]; }
  MF_FN_MEMBER void add(MF_LOCAL(Value) sum, f32 weight, Value value) const {
    MF_UNROLL
    for (u32 v = 0u; v < VECTORS; ++v) sum->v[v] = plus_times(sum->v[v], weight, value.v[v]);
  }
};

/// The same as four columns.
struct QuadSlots {
  typedef F4 Value;
  MF_GLOBAL(const f32) slots;
  MF_GLOBAL(const f32) weights;
  u32 cols;

  MF_FN_MEMBER Value load(MF_T, u32 rank) const {
    return load4(slots + static_cast<u64>(rank) * cols);
  }
  MF_FN_MEMBER f32 weight(MF_T, u32 rank) const { return weights[rank]; }
  MF_FN_MEMBER void add(MF_LOCAL(Value) sum, f32 weight, Value value) const {
    *sum = plus_times(*sum, weight, value);
  }
};

/// Slots that are under way together.
enum : u32 { kSlotsAtOnce = 8 };

/// The addends of sums, and the places of the sums.
struct ChainParts {
  MF_GLOBAL(const f32) slots;
  MF_GLOBAL(const f32) slot_weights;
  MF_GLOBAL(const f32) base;
  MF_GLOBAL(const f32) addend1;
  MF_GLOBAL(const f32) addend2;
};
struct ChainSums {
  MF_GLOBAL(f32) sum0;
  MF_GLOBAL(f32) sum1;
  MF_GLOBAL(f32) sum2;
};

/// sum0, the slots of a row in router order or else the base; sum1, that and the first addend;
/// sum2, that and the second. A thread four columns; group y: the row.
MF_KERNEL(chain_sums, ChainParams, MF_READ(0, f32, slots), MF_READ(1, f32, slot_weights),
          MF_READ(2, f32, base), MF_READ(3, f32, addend1), MF_READ(4, f32, addend2),
          MF_WRITE(5, f32, sum0), MF_WRITE(6, f32, sum1), MF_WRITE(7, f32, sum2)) {
  MF_THREAD;
  const u32 c = (t.group.x * t.threads + t.index) * 4u;
  if (c >= p.cols) return;
  const u64 at = static_cast<u64>(t.group.y) * p.cols + c;
  F4 more1 = {{0.0f, 0.0f, 0.0f, 0.0f}};
  F4 more2 = more1;
  F4 sum = more1;
  if (p.adds > 0u) more1 = load4(addend1 + at);
  if (p.adds > 1u) more2 = load4(addend2 + at);
  if (p.top_k == 0u) sum = load4(base + at);
  const u64 slot = static_cast<u64>(t.group.y) * p.top_k;
  const QuadSlots own = {slots + (slot * p.cols + c), slot_weights + slot, p.cols};
  sum_slots<kSlotsAtOnce>(t, &own, p.top_k, &sum);
  if (p.top_k > 0u) store4(sum0 + at, sum);
  sum = plus(sum, more1);
  if (p.adds > 0u) store4(sum1 + at, sum);
  if (p.adds > 1u) store4(sum2 + at, plus(sum, more2));
}

/// Adds the addends to the sum, writes each step down, and returns the thread's squares.
template <u32 VECTORS>
MF_FN f32 add_parts(MF_T t, MF_PARAMS(ChainParams) p, MF_LOCAL(ChainColumns<VECTORS>) sum,
                    MF_LOCAL(const ChainColumns<VECTORS>) more1,
                    MF_LOCAL(const ChainColumns<VECTORS>) more2, MF_GLOBAL(f32) sum1,
                    MF_GLOBAL(f32) sum2) {
  if (p.adds > 0u) {
    add_chain<VECTORS>(sum, more1);
    store_chain<VECTORS>(t, sum1, p.cols, sum);
  }
  if (p.adds > 1u) {
    add_chain<VECTORS>(sum, more2);
    store_chain<VECTORS>(t, sum2, p.cols, sum);
  }
  f32 squares = 0.0f;
  MF_UNROLL
  for (u32 v = 0u; v < VECTORS; ++v) squares = add_squares(squares, sum->v[v]);
  return squares;
}

/// A row's columns as integers: as mma_quantize_rows() makes them, half an octet a lane.
template <u32 VECTORS>
MF_FN void quantize_chain(MF_T t, MF_PARAMS(ChainParams) p,
                          MF_LOCAL(const ChainColumns<VECTORS>) row, MF_GLOBAL(u32) split,
                          MF_GLOBAL(f32) sums) {
  const bool by_halves = (p.order & kRowsByHalves) != 0u;
  const bool is_first = (t.lane & 1u) == 0u;
  MF_UNROLL
  for (u32 v = 0u; v < VECTORS; ++v) {
    const u32 c = chain_column(t, v);
    const UnitFactor factor = unit_factor(lanes_max<16u>(t, largest_bits<4u>(row->v[v].v)));
    const MmaQuad quad = mma_quad(row->v[v].v, factor.into, by_halves);
    // The first stores the octet's 256s, the other its ones.
    const u32 other = simd_shuffle_xor(t, is_first ? quad.low : quad.high, 1u);
    const W2 words =
        is_first ? join_quads(quad.high, other, by_halves) : join_quads(other, quad.low, by_halves);
    const i32 quarter = add_lane(t, add_lane(t, quad.sum, 1u), 2u);
    const i32 half = add_lane(t, quarter, 4u);
    const i32 sum = add_lane(t, half, 8u);
    if (c >= p.cols) continue;
    const u64 block = static_cast<u64>(t.group.x) * (p.cols / kMmaBlock) + c / kMmaBlock;
    const QuantizedPlace place = quantized_place(p.order, c % kMmaBlock / 8u);
    MF_GLOBAL(u32)
    to = split + (block * kMmaBlockWords + place.within + (is_first ? 0u : kMmaBlockWords / 2u));
    to[0] = words.v[0];
    to[place.step] = words.v[1];
    store_quantized_sums(sums, block, by_halves, t.lane % 16u, 16u, quarter, half, sum,
                         factor.out_of);
  }
}

template <u32 VECTORS>
MF_FN ChainColumns<VECTORS> norm_chain(MF_T t, MF_PARAMS(ChainParams) p, ChainParts parts,
                                       ChainSums sums, MF_GLOBAL(const f32) weight,
                                       MF_GLOBAL(f32) out) {
  for (u32 c = t.index * 32u; c < p.cols; c += t.threads * 32u) prefetch(t, weight + c);
  await_inputs(t);
  const u64 row = static_cast<u64>(t.group.x) * p.cols;
  // Addends are loaded before they are needed.
  ChainColumns<VECTORS> more1;
  if (p.adds > 0u) more1 = load_chain<VECTORS>(t, parts.addend1 + row, p.cols);
  ChainColumns<VECTORS> more2;
  if (p.adds > 1u) more2 = load_chain<VECTORS>(t, parts.addend2 + row, p.cols);
  ChainColumns<VECTORS> sum = load_chain<VECTORS>(t, parts.base + row, p.top_k == 0u ? p.cols : 0u);
  if (p.top_k > 0u) {
    // As many slots together as have room in registers.
    const u64 slot = static_cast<u64>(t.group.x) * p.top_k;
    const ChainSlots<VECTORS> own = {parts.slots + slot * p.cols, parts.slot_weights + slot,
                                     p.cols};
    sum_slots<static_cast<u32>(kChainVectorsMax) / VECTORS>(t, &own, p.top_k, &sum);
    store_chain<VECTORS>(t, sums.sum0 + row, p.cols, &sum);
  }
  const f32 squares =
      add_parts<VECTORS>(t, p, &sum, &more1, &more2, sums.sum1 + row, sums.sum2 + row);
  const f32 all = group_sum(t, squares, MF_SHARED_AT(t, f32, 0u));
  const f32 factor = norm_factor(all, p.cols, p.epsilon);
  const ChainColumns<VECTORS> scales = load_chain<VECTORS>(t, weight, p.cols);
  MF_UNROLL
  for (u32 v = 0u; v < VECTORS; ++v) {
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) sum.v[v].v[k] = sum.v[v].v[k] * factor * scales.v[v].v[k];
  }
  store_chain<VECTORS>(t, out + row, p.cols, &sum);
  return sum;
}

/// out = rms_norm of the last of: sum0, the slots of a row in router order or else the base; sum1,
/// that and the first addend; sum2, that and the second. All of them are written. A group of 32 or
/// 256 threads a row, rows one behind another. Shared: one float a SIMD group.
#define MF_NORM_CHAIN(name, VECTORS)                                                   \
  MF_KERNEL(name, ChainParams, MF_READ(0, f32, slots), MF_READ(1, f32, slot_weights),  \
            MF_READ(2, f32, base), MF_READ(3, f32, addend1), MF_READ(4, f32, addend2), \
            MF_CONST(5, f32, weight), MF_WRITE(6, f32, sum0), MF_WRITE(7, f32, sum1),  \
            MF_WRITE(8, f32, sum2), MF_WRITE(9, f32, out)) {                           \
    MF_THREAD_EARLY;                                                                   \
    const ChainParts parts = {slots, slot_weights, base, addend1, addend2};            \
    const ChainSums sums = {sum0, sum1, sum2};                                         \
    (void)norm_chain<VECTORS>(t, p, parts, sums, weight, out);                         \
  }
MF_NORM_CHAIN(rms_norm_chain, kChainVectorsMax)
MF_FITS(kNormLongThreads, 1)
MF_NORM_CHAIN(rms_norm_chain_long, kChainLongVectors)
#undef MF_NORM_CHAIN

/// The same for rows of up to kChainVectorsShort vectors a thread, of many tokens: more groups at
/// once. The norm may become integers as well.
MF_KERNEL(rms_norm_chain_short, ChainParams, MF_READ(0, f32, slots), MF_READ(1, f32, slot_weights),
          MF_READ(2, f32, base), MF_READ(3, f32, addend1), MF_READ(4, f32, addend2),
          MF_CONST(5, f32, weight), MF_WRITE(6, f32, sum0), MF_WRITE(7, f32, sum1),
          MF_WRITE(8, f32, sum2), MF_WRITE(9, f32, out), MF_WRITE(10, u32, split),
          MF_WRITE(11, f32, split_sums)) {
  MF_THREAD_EARLY;
  const ChainParts parts = {slots, slot_weights, base, addend1, addend2};
  const ChainSums sums = {sum0, sum1, sum2};
  const ChainColumns<kChainVectorsShort> row =
      norm_chain<kChainVectorsShort>(t, p, parts, sums, weight, out);
  if (p.order != kRowsNone) quantize_chain<kChainVectorsShort>(t, p, &row, split, split_sums);
}

/// The sum over a group of kNormLongSimds SIMD groups, as group_sum() has it.
MF_FN f32 long_group_sum(MF_T t, f32 value, MF_SHARED(f32) sums) {
  const f32 own = simd_sum(t, value);
  if (t.lane == 0u) sums[t.simd] = own;
  barrier(t);
  F4 parts[kNormLongSimds / 4u];
  MF_UNROLL
  for (u32 i = 0u; i < kNormLongSimds / 4u; ++i) parts[i] = load4(sums + i * 4u);
  f32 sum = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < kNormLongSimds; ++i) sum = sum + parts[i / 4u].v[i % 4u];
  return sum;
}

/// The same for long rows of few tokens, without slots. A group of the launch that follows has room
/// beside this one, and usually starts together with it (the launch queue decides). Otherwise it
/// starts only after this launch has issued all its loads: its own are thousands of times larger
/// and would delay ours. Each thread loads the norm weights that it will use before the inputs are
/// ready.
MF_FITS(kNormLongThreads, 2)
MF_KERNEL(rms_norm_chain_few, ChainParams, MF_READ(0, f32, base), MF_READ(1, f32, addend1),
          MF_READ(2, f32, addend2), MF_CONST(3, f32, weight), MF_WRITE(4, f32, sum1),
          MF_WRITE(5, f32, sum2), MF_WRITE(6, f32, out)) {
  MF_THREAD_EARLY;
  typedef ChainColumns<kChainLongVectors> Columns;
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, 0u);
  const u32 kept = static_cast<u32>(kNormLongSimds) + t.index * 4u;
  MF_UNROLL
  for (u32 v = 0u; v < kChainLongVectors; ++v) {
    const u32 c = chain_column(t, v);
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (kept + v * kNormLongThreads * 4u) * 4u);
    if (c < p.cols) copy_async4(t, to, MF_CAST(const u32, weight) + c);
  }
  copies_commit(t);
  const u64 row = static_cast<u64>(t.group.x) * p.cols;
  await_launch(t);
  Columns sum = load_chain<kChainLongVectors>(t, base + row, p.cols);
  Columns more1;
  if (p.adds > 0u) more1 = load_chain<kChainLongVectors>(t, addend1 + row, p.cols);
  Columns more2;
  if (p.adds > 1u) more2 = load_chain<kChainLongVectors>(t, addend2 + row, p.cols);
  let_next_start(t);
  const f32 squares =
      add_parts<kChainLongVectors>(t, p, &sum, &more1, &more2, sum1 + row, sum2 + row);
  const f32 factor = norm_factor(long_group_sum(t, squares, sums), p.cols, p.epsilon);
  copies_wait<0>(t);
  MF_UNROLL
  for (u32 v = 0u; v < kChainLongVectors; ++v) {
    const u32 c = chain_column(t, v);
    if (c >= p.cols) continue;
    const F4 scale = load4(MF_SHARED_AT(t, f32, (kept + v * kNormLongThreads * 4u) * 4u));
    store4(out + (row + c), times(times(sum.v[v], factor), scale));
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
