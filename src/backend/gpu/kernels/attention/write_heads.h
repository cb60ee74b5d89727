// Norms, rotary positions and the copy into the pages of keys and values, in one launch: all that
// heads go through on their way to attention.
#pragma once

#include "backend/gpu/kernels/attention/cached.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/rope.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/norm/sums.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A head through its norm and its turns, which are in shared memory behind room for it, and to its
/// places. WIDE: rows begin on 16-byte boundaries; without branches for others in between, there is
/// less to fetch.
template <u32 WIDE>
MF_FN void place_head(MF_T t, MF_PARAMS(WriteHeadsParams) p, HeadsPart part, MF_GLOBAL(f32) x,
                      MF_GLOBAL(const f32) weight, MF_SHARED(f32) row, u32 which,
                      MF_GLOBAL(u16) page) {
  MF_GLOBAL(const f32) from = MF_CAST(const f32, x);
  MF_SHARED(f32) turns = row + p.stage_cols;
  f32 factor = 1.0f;
  if (part.has_norm != 0u) {
    const f32 squares = simd_sum(t, row_squares(from, t.lane, 32u, part.cols, WIDE));
    factor = norm_factor(squares, part.cols, part.epsilon);
  }
  for (u32 c = t.lane * 4u; c < part.cols; c += 128u) {
    F4 four = load_columns(from, c, part.cols, WIDE);
    if (part.has_norm != 0u) four = times(four, factor);
    if (part.has_weight != 0u) four = times(four, load_columns(weight, c, part.cols, WIDE));
    if (WIDE != 0u) {
      store4(row + c, four);
      continue;
    }
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      if (c + i < part.cols) row[c + i] = four.v[i];
    }
  }
  simd_barrier(t);
  for (u32 pair = t.lane; pair < part.half; pair += 32u) {
    const u32 first = part.turned + (p.interleaved != 0u ? 2u * pair : pair);
    const u32 second = first + (p.interleaved != 0u ? 1u : part.half);
    const Turn turn = {turns[2u * pair], turns[2u * pair + 1u]};
    const Rotated both = rotated(row[first], row[second], turn);
    row[first] = both.first;
    row[second] = both.second;
  }
  simd_barrier(t);
  const bool changes = part.has_norm != 0u || part.half > 0u;
  const bool stores = which != 0u && part.stored != kCachedQ8;
  const u32 is_f16 = part.stored == kCachedF16 ? 1u : 0u;
  const u32 width = WIDE != 0u ? 4u : 1u;
  for (u32 c = t.lane * width; c < part.cols; c += 32u * width) {
    if (WIDE != 0u) {
      const F4 four = load4(row + c);
      if (changes) store4(x + c, four);
      if (stores) store_cached4(page, c, is_f16, four);
    } else {
      const f32 one = row[c];
      if (changes) x[c] = one;
      if (stores) store_cached(page, c, is_f16, one);
    }
  }
  if (which != 0u && !stores) store_q8_row(t, row, part.cols, page);
}

/// A SIMD group a head: of queries, then of keys, then of values. Group y: the token. Shared: a
/// head and its turns for each SIMD group. The turns take sines and cosines, and addresses a look
/// into a table: both are done before the heads are there.
MF_KERNEL(write_heads, WriteHeadsParams, MF_WRITE(0, f32, q), MF_WRITE(1, f32, k),
          MF_WRITE(2, f32, v), MF_CONST(3, f32, q_weight), MF_CONST(4, f32, k_weight),
          MF_CONST(5, f32, v_weight), MF_READ(6, i32, positions), MF_CONST(7, f32, frequencies),
          MF_CONST(8, u64, k_pages), MF_CONST(9, u64, v_pages)) {
  MF_THREAD_EARLY;
  if (p.early == 0u) await_inputs(t);
  const u32 token = t.group.y;
  u32 head = t.group.x * t.simds + t.simd;
  u32 which = 0u;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    if (which == i && head >= p.parts[i].heads) {
      head -= p.parts[i].heads;
      which = i + 1u;
    }
  }
  const HeadsPart part = p.parts[which];
  if (head >= part.heads) return;
  MF_GLOBAL(f32) x = which == 0u ? q : which == 1u ? k : v;
  MF_GLOBAL(const f32) weight = which == 0u ? q_weight : which == 1u ? k_weight : v_weight;
  x = x + (token * part.x.token_stride + head * part.x.head_stride);
  MF_SHARED(f32) row = MF_SHARED_AT(t, f32, 0u) + t.simd * 2u * p.stage_cols;
  MF_SHARED(f32) turns = row + p.stage_cols;
  if (part.has_weight != 0u && t.lane * 32u < part.cols) prefetch(t, weight + t.lane * 32u);
  for (u32 pair = t.lane; pair < part.half; pair += 32u) {
    const i32 turning = turning_position(positions[token], p.unit);
    const Turn turn = turn_of(turning, frequencies[pair], p.factor);
    turns[2u * pair] = turn.cosine;
    turns[2u * pair + 1u] = turn.sine;
  }
  const TokenSequence sequence = sequence_of(t, p, k_pages, v_pages, token);
  const u32 position = position_in(sequence, token) / p.key_tokens;
  const u32 number = position / p.page_tokens;
  const u32 at = number % sequence.num_pages;
  u64 page_address = 0u;
  if (which == 1u) page_address = sequence.k_pages[at];
  if (which == 2u) page_address = sequence.v_pages[at];
  if (p.early != 0u) await_inputs(t);
  const u32 within = position - number * p.page_tokens;
  MF_GLOBAL(u16) page = MF_CAST(u16, x);
  if (which != 0u) {
    const u64 place = within * part.page.token_stride + head * part.page.head_stride;
    page = cached_place(t, page_address, part.stored == kCachedQ8 ? place / 2u : place,
                        part.stored != kCachedF32 ? 1u : 0u);
  }
  if (part.wide != 0u) {
    place_head<1u>(t, p, part, x, weight, row, which, page);
  } else {
    place_head<0u>(t, p, part, x, weight, row, which, page);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
