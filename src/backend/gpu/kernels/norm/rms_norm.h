// Root mean square norms (sums.h says how a row is summed over).
#pragma once

#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The factors of a row's columns, loaded together and used one after the other.
struct NormScales {
  F4 weight;
  F4 gate;
};

MF_FN NormScales norm_scales(MF_PARAMS(RowsParams) p, MF_GLOBAL(const f32) weight,
                             MF_GLOBAL(const f32) gates, u32 c) {
  const F4 ones = {{1.0f, 1.0f, 1.0f, 1.0f}};
  NormScales scales = {ones, ones};
  if (p.weights != 0u) scales.weight = load_columns(weight, c, p.cols, p.wide);
  if (p.has_gate != 0u) scales.gate = load_columns(gates, c, p.cols, p.wide);
  return scales;
}

/// (row * factor * weight) * activation(gate), the last two if they are there.
MF_FN F4 normed_columns(MF_PARAMS(RowsParams) p, F4 four, f32 factor, NormScales scales) {
  four = times(four, factor);
  if (p.weights != 0u) four = times(four, scales.weight);
  if (p.has_gate == 0u) return four;
  MF_UNROLL
  for (u32 k = 0u; k < 4u; ++k) four.v[k] = four.v[k] * activate(scales.gate.v[k], p.activation);
  return four;
}

/// The weight of a row of a norm.
MF_FN MF_GLOBAL(const f32)
    weight_of_row(MF_PARAMS(RowsParams) p, MF_GLOBAL(const f32) weight, u32 row) {
  return p.weights > 1u ? weight + static_cast<u64>(row % p.weights) * p.cols : weight;
}

/// Where a row of a norm is.
struct NormRow {
  u64 from;
  u64 gates;
  u64 to;
};

MF_FN void norm_narrow(MF_T t, MF_PARAMS(RowsParams) p, MF_GLOBAL(const f32) from,
                       MF_GLOBAL(const f32) weight, MF_GLOBAL(const f32) gates, MF_GLOBAL(f32) to) {
  const u32 first = t.lane * 4u < p.cols ? t.lane * 4u : 0u;
  NormScales scales = norm_scales(p, weight, gates, first);
  const f32 squares = simd_sum(t, row_squares(from, t.lane, 32u, p.cols, p.wide));
  const f32 factor = norm_factor(squares, p.cols, p.factor);
  for (u32 c = t.lane * 4u; c < p.cols; c += 128u) {
    const F4 four = load_columns(from, c, p.cols, p.wide);
    store_columns(to, c, p.cols, p.wide, normed_columns(p, four, factor, scales));
    if (c + 128u < p.cols) scales = norm_scales(p, weight, gates, c + 128u);
  }
}

/// kNarrowRows rows of up to 128 columns, whose bytes are on their way together.
MF_FN void norm_narrow_rows(MF_T t, MF_PARAMS(RowsParams) p, MF_GLOBAL(const f32) from,
                            MF_GLOBAL(const f32) weight, MF_GLOBAL(const f32) gates,
                            MF_GLOBAL(f32) to) {
  const u32 c = t.lane * 4u;
  const bool is_inside = c < p.cols;
  const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
  F4 rows[kNarrowRows];
  NormScales scales[kNarrowRows];
  MF_UNROLL
  for (u32 r = 0u; r < kNarrowRows; ++r) {
    rows[r] = is_inside ? load4(from + (r * p.a.strides[2] + c)) : nothing;
    scales[r] = norm_scales(p, weight, gates + r * p.b.strides[2], is_inside ? c : 0u);
  }
  f32 squares[kNarrowRows];
  MF_UNROLL
  for (u32 r = 0u; r < kNarrowRows; ++r) squares[r] = simd_sum(t, add_squares(0.0f, rows[r]));
  MF_UNROLL
  for (u32 r = 0u; r < kNarrowRows; ++r) {
    const f32 factor = norm_factor(squares[r], p.cols, p.factor);
    if (is_inside) {
      store4(to + (r * p.out.strides[2] + c), normed_columns(p, rows[r], factor, scales[r]));
    }
  }
}

/// p.simd_rows rows a SIMD group, which share an inner dimension: finding a row takes as long as
/// its norm.
MF_KERNEL(rms_norm_narrow, RowsParams, MF_READ(0, f32, a), MF_CONST(1, f32, weight),
          MF_READ(2, f32, gate), MF_WRITE(3, f32, out)) {
  MF_THREAD_EARLY;
  if (p.weights != 0u && t.lane * 32u < p.cols) prefetch(t, weight + t.lane * 32u);
  await_inputs(t);
  const u32 row = (t.group.x * t.simds + t.simd) * p.simd_rows;
  if (row >= p.rows) return;
  NormRow at = {row_at(p.a, row), p.has_gate != 0u ? row_at(p.b, row) : 0u, row_at(p.out, row)};
  if (p.simd_rows == kNarrowRows && p.cols <= 128u && p.wide != 0u) {
    norm_narrow_rows(t, p, a + at.from, weight, gate + at.gates, out + at.to);
    return;
  }
  for (u32 r = 0u; r < p.simd_rows; ++r) {
    norm_narrow(t, p, a + at.from, weight_of_row(p, weight, row + r), gate + at.gates, out + at.to);
    at.from += p.a.strides[2];
    at.gates += p.has_gate != 0u ? p.b.strides[2] : 0u;
    at.to += p.out.strides[2];
  }
}

/// A thread's columns of a row that is held, with its weights.
struct HeldRow {
  F4 weights[kNormHeldVectors];
  F4 columns[kNormHeldVectors];

  MF_FN_MEMBER u32 at(MF_T t, u32 v) const { return (v * t.threads + t.index) * 4u; }
  MF_FN_MEMBER void load_weights(MF_T t, MF_PARAMS(RowsParams) p, MF_GLOBAL(const f32) weight) {
    const F4 ones = {{1.0f, 1.0f, 1.0f, 1.0f}};
    MF_UNROLL
    for (u32 v = 0u; v < kNormHeldVectors; ++v) {
      const bool has = p.weights != 0u && at(t, v) < p.cols;
      weights[v] = has ? load_columns(weight, at(t, v), p.cols, p.wide) : ones;
    }
  }
  MF_FN_MEMBER f32 load(MF_T t, MF_PARAMS(RowsParams) p, MF_GLOBAL(const f32) from) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_UNROLL
    for (u32 v = 0u; v < kNormHeldVectors; ++v) {
      columns[v] = at(t, v) < p.cols ? load_columns(from, at(t, v), p.cols, p.wide) : nothing;
    }
    f32 squares = 0.0f;
    MF_UNROLL
    for (u32 v = 0u; v < kNormHeldVectors; ++v) squares = add_squares(squares, columns[v]);
    return squares;
  }
  MF_FN_MEMBER void store(MF_T t, MF_PARAMS(RowsParams) p, MF_GLOBAL(f32) to, f32 factor) const {
    MF_UNROLL
    for (u32 v = 0u; v < kNormHeldVectors; ++v) {
      const F4 scaled = times(times(columns[v], factor), weights[v]);
      if (at(t, v) < p.cols) store_columns(to, at(t, v), p.cols, p.wide, scaled);
    }
  }
};

/// One group a row. Shared: one float a SIMD group.
MF_FITS(kNormLongThreads, 1)
MF_KERNEL(rms_norm_wide, RowsParams, MF_READ(0, f32, a), MF_CONST(1, f32, weight),
          MF_WRITE(2, f32, out)) {
  MF_THREAD_EARLY;
  MF_GLOBAL(const f32) own_weight = weight_of_row(p, weight, t.group.x);
  const bool is_held = p.cols <= t.threads * 4u * kNormHeldVectors;
  HeldRow held;
  if (is_held) held.load_weights(t, p, own_weight);
  await_inputs(t);
  MF_GLOBAL(const f32) from = a + row_at(p.a, t.group.x);
  MF_GLOBAL(f32) to = out + row_at(p.out, t.group.x);
  const f32 own =
      is_held ? held.load(t, p, from) : row_squares(from, t.index, t.threads, p.cols, p.wide);
  const f32 squares = group_sum(t, own, MF_SHARED_AT(t, f32, 0u));
  const f32 factor = norm_factor(squares, p.cols, p.factor);
  if (is_held) return held.store(t, p, to, factor);
  for (u32 c = t.index * 4u; c < p.cols; c += t.threads * 4u) {
    const F4 four = load_columns(from, c, p.cols, p.wide);
    const NormScales scales = norm_scales(p, own_weight, a, c);
    store_columns(to, c, p.cols, p.wide, normed_columns(p, four, factor, scales));
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
