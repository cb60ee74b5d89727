// Residuals of several streams: their gates, and what a branch adds to them.
#pragma once

#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/rows/elements.h"
#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The lanes of a row or a column of a matrix that a SIMD group has, a number a lane. SIZE rows,
/// or as many as `size` says where that is 0.
template <u32 SIZE>
struct MatrixLane {
  u32 row;
  u32 col;
  u32 size;

  MF_FN_MEMBER u32 count() const { return SIZE != 0u ? SIZE : size; }
  /// A sum over the row, or the highest of it, and a sum over the column; each in order.
  MF_FN_MEMBER f32 row_sum(MF_T t, f32 value) const {
    f32 sum = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < count(); ++i) sum = sum + simd_shuffle(t, value, row * count() + i);
    return sum;
  }
  MF_FN_MEMBER f32 row_max(MF_T t, f32 value) const {
    f32 most = simd_shuffle(t, value, row * count());
    MF_UNROLL
    for (u32 i = 1u; i < count(); ++i) {
      most = mf_max(most, simd_shuffle(t, value, row * count() + i));
    }
    return most;
  }
  MF_FN_MEMBER f32 column_sum(MF_T t, f32 value) const {
    f32 sum = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < count(); ++i) sum = sum + simd_shuffle(t, value, i * count() + col);
    return sum;
  }
};

/// The gates of writing and mixing of a token: of a SIMD group's lanes each has a number of the
/// matrix; those behind it repeat the last one.
template <u32 SIZE>
MF_FN void make_gates(MF_T t, MF_PARAMS(StreamGateParams) p, MF_GLOBAL(const f32) logits,
                      MF_GLOBAL(const f32) scale, MF_GLOBAL(const f32) base, MF_GLOBAL(f32) write,
                      MF_GLOBAL(f32) mix) {
  const u32 last = p.streams * p.streams - 1u;
  const u32 lane = t.lane < last ? t.lane : last;
  const MatrixLane<SIZE> at = {lane / p.streams, lane % p.streams, p.streams};
  if (t.lane < p.streams) {
    const u32 from = p.streams + t.lane;
    write[t.lane] =
        p.magnitude * sigmoid(mf_fma(logits[from], scale[1], base[from])) + p.write_epsilon;
  }
  if (p.mixes == 0u) return;
  simd_barrier(t);
  const u32 from = 2u * p.streams + lane;
  f32 value = mf_fma(logits[from], scale[2], base[from]);
  value = mf_exp(value - at.row_max(t, value));
  value = value / at.row_sum(t, value) + p.epsilon;
  value = value / (at.column_sum(t, value) + p.epsilon);
  MF_ROLLED
  for (u32 i = 1u; i < p.iterations; ++i) {
    value = value / (at.row_sum(t, value) + p.epsilon);
    value = value / (at.column_sum(t, value) + p.epsilon);
  }
  if (t.lane <= last) mix[lane] = value;
}

/// Columns of all streams from `first` on, `apart` numbers from one stream to the next; zeros for
/// streams that are not there.
struct StreamColumns {
  F4 values[kExpandStreamsMax];

  MF_FN_MEMBER void load(MF_GLOBAL(const f32) first, u32 apart, u32 col, u32 streams, u32 wide) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_UNROLL
    for (u32 i = 0u; i < kExpandStreamsMax; ++i) {
      values[i] = i < streams ? load_some(first + i * apart, col, wide) : nothing;
    }
  }
};

/// Group y: a token. The first group x makes the gates that stay, where there are some. In the
/// others a thread sums a column of all streams, or four where p.wide.
MF_KERNEL(read_streams, StreamGateParams, MF_READ(0, f32, logits), MF_CONST(1, f32, scale),
          MF_CONST(2, f32, base), MF_READ(3, f32, x), MF_WRITE(4, f32, write),
          MF_WRITE(5, f32, mix), MF_WRITE(6, f32, out)) {
  MF_THREAD;
  const u64 token = t.group.y;
  const u32 kinds = 1u + p.makes_gates + (p.mixes != 0u ? p.streams : 0u);
  MF_GLOBAL(const f32) own = logits + token * kinds * p.streams;
  if (t.group.x < p.makes_gates) {
    if (t.simd > 0u) return;
    MF_GLOBAL(f32) writes = write + token * p.streams;
    MF_GLOBAL(f32) mixes = mix + token * p.streams * p.streams;
    // The number of streams that models have, whose sums then take half of the time.
    if (p.streams == 4u) {
      make_gates<4u>(t, p, own, scale, base, writes, mixes);
    } else {
      make_gates<0u>(t, p, own, scale, base, writes, mixes);
    }
    return;
  }
  const u32 index = (t.group.x - p.makes_gates) * t.threads + t.index;
  const u32 col = index * (p.wide != 0u ? 4u : 1u);
  if (col >= p.cols) return;
  StreamColumns from;
  from.load(x + token * p.streams * p.cols, p.cols, col, p.streams, p.wide);
  F4 sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 i = 0u; i < kExpandStreamsMax; ++i) {
    if (i >= p.streams) continue;
    const f32 gate = sigmoid(mf_fma(own[i], scale[0], base[i])) + p.epsilon;
    sum = plus_times(sum, gate, from.values[i]);
  }
  store_some(out + token * p.cols, col, p.wide, sum);
}

/// The sum over streams of x * sigmoid(gate). Group y: a token. A thread a column, or four where
/// p.wide.
MF_KERNEL(sum_gated, SumGatedParams, MF_READ(0, f32, x), MF_READ(1, f32, gates),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 col = (t.group.x * t.threads + t.index) * (p.wide != 0u ? 4u : 1u);
  if (col >= p.cols) return;
  const u64 row = static_cast<u64>(t.group.y) * p.cols;
  StreamColumns from;
  from.load(x + row * p.streams, p.cols, col, p.streams, p.wide);
  StreamColumns gate;
  gate.load(gates + row * p.streams, p.cols, col, p.streams, p.wide);
  F4 sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 j = 0u; j < kExpandStreamsMax; ++j) {
    if (j >= p.streams) continue;
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) {
      sum.v[k] = mf_fma(from.values[j].v[k], sigmoid(gate.values[j].v[k]), sum.v[k]);
    }
  }
  store_some(out + row, col, p.wide, sum);
}

/// The dot product of a row of each, its root with its sign. A group a row. Shared: one float a
/// SIMD group.
MF_KERNEL(root_dots, RootDotParams, MF_READ(0, f32, a), MF_READ(1, f32, b), MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 row = t.group.x;
  MF_GLOBAL(const f32) left = a + static_cast<u64>(row) * p.cols;
  MF_GLOBAL(const f32) right = b + static_cast<u64>(row) * p.cols;
  const u32 step = p.wide != 0u ? 4u : 1u;
  f32 sum = 0.0f;
  for (u32 c = t.index * step; c < p.cols; c += t.threads * step) {
    const F4 x = load_some(left, c, p.wide);
    const F4 y = load_some(right, c, p.wide);
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) sum = mf_fma(x.v[k], y.v[k], sum);
  }
  const f32 dot = group_sum(t, sum, MF_SHARED_AT(t, f32, 0u)) * p.scale;
  if (t.index > 0u) return;
  const f32 size = dot < 0.0f ? -dot : dot;
  const f32 root = mf_sqrt(size < p.least ? p.least : size);
  out[row] = dot < 0.0f ? -root : dot == 0.0f ? 0.0f : root;
}

/// Group y: a token. A thread a column of all streams, or four where p.wide.
MF_KERNEL(expand_streams, ExpandParams, MF_READ(0, f32, x), MF_READ(1, f32, branch),
          MF_READ(2, f32, write), MF_READ(3, f32, mix), MF_WRITE(4, f32, out)) {
  MF_THREAD;
  const u32 col = (t.group.x * t.threads + t.index) * (p.wide != 0u ? 4u : 1u);
  const u32 token = t.group.y;
  if (col >= p.cols) return;
  MF_GLOBAL(const f32) from = x + static_cast<u64>(token) * p.streams * p.cols;
  MF_GLOBAL(f32) to = out + static_cast<u64>(token) * p.streams * p.cols;
  MF_GLOBAL(const f32) writes = write + static_cast<u64>(token) * p.streams;
  MF_GLOBAL(const f32) mixes = mix;
  if (p.mixes != 0u) mixes = mix + static_cast<u64>(token) * p.streams * p.streams;
  const F4 added = load_some(branch + token * p.branch_stride, col, p.wide);
  StreamColumns streams;
  streams.load(from, p.cols, col, p.streams, p.wide);
  for (u32 j = 0u; j < p.streams; ++j) {
    const f32 factor = p.from_logits != 0u ? 2.0f * sigmoid(writes[j]) : writes[j];
    F4 sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) sum.v[k] = factor * added.v[k];
    MF_UNROLL
    for (u32 i = 0u; i < kExpandStreamsMax; ++i) {
      if (i >= p.streams || (p.mixes == 0u && i != j)) continue;
      const f32 share = p.mixes != 0u ? mixes[i * p.streams + j] : 1.0f;
      sum = plus_times(sum, share, streams.values[i]);
    }
    store_some(to + j * p.cols, col, p.wide, sum);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
