// The gated delta rule for one token with keys and values of 128, with the norm of its heads and
// their gate: a group owns a whole value head, as a norm needs it. The state of 64 KiB is on its
// way to registers before the token is there, if the host says that nobody still writes it. What is
// summed in which order is what gated_delta.h and norm.h say. One shape, as a kernel that runs
// through its text once waits for the text above all.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Of four columns, in a thread: four in every 64.
enum : u32 { kDeltaOneRows = 8 };
/// SIMD groups after those that have cells: they find a token's scalars, then sum up columns.
enum : u32 {
  kDeltaKeySimd = kDeltaOneSimds,
  kDeltaQuerySimd,
  kDeltaMatchSimd,
  kDeltaDecaySimd,
  kDeltaHeadSimd,
};

MF_FN u32 delta_row(u32 i) { return i / 4u * 64u + i % 4u; }

/// By the SIMD groups that find them.
MF_FN MF_SHARED(f32) delta_scalars_at(MF_T t) {
  return MF_SHARED_AT(t, f32, (kDeltaOneScalars - kDeltaOneSimds) * 4u);
}

/// `rate` is that of the SIMD groups that take one.
MF_FN void store_delta_scalar(MF_T t, MF_PARAMS(DeltaOneParams) p, f32 rate, f32 bias, f32 speed) {
  f32 value = 0.0f;
  if (t.simd == kDeltaDecaySimd) {
    value = delta_decay(rate, bias, speed);
  } else if (t.simd == kDeltaHeadSimd) {
    value = sigmoid(rate);
  } else {
    const u32 a_row = t.simd == kDeltaQuerySimd ? kDeltaOneQuery : kDeltaOneKey;
    const u32 b_row = t.simd == kDeltaKeySimd ? kDeltaOneKey : kDeltaOneQuery;
    DeltaRow a;
    DeltaRow b;
    MF_UNROLL
    for (u32 i = 0u; i < 4u; ++i) {
      const u32 own = i * 32u + t.lane % 8u * 4u;
      a.v[i] = load4(MF_SHARED_AT(t, f32, a_row * 4u) + own);
      b.v[i] = load4(MF_SHARED_AT(t, f32, b_row * 4u) + own);
    }
    value = delta_product<8u>(t, &a, &b);
    const f32 factor = t.simd == kDeltaQuerySimd ? p.query_factor : 1.0f;
    if (t.simd != kDeltaMatchSimd) value = delta_scale(factor, value);
  }
  if (t.lane == 0u) delta_scalars_at(t)[t.simd] = value;
}
MF_FN DeltaScalars load_delta_scalars(MF_T t) {
  MF_SHARED(f32) at = delta_scalars_at(t);
  return delta_scalars(at[kDeltaDecaySimd], at[kDeltaHeadSimd], at[kDeltaKeySimd],
                       at[kDeltaQuerySimd], at[kDeltaMatchSimd]);
}

/// A thread's rows of the key or the query.
struct DeltaOneRow {
  F4 v[2];
};
MF_FN DeltaOneRow load_delta_row(MF_T t, u32 words) {
  DeltaOneRow row;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    row.v[i] = load4(MF_SHARED_AT(t, f32, words * 4u) + (i * 64u + t.simd * 4u));
  }
  return row;
}

/// The thread's part of row s.
MF_FN void store_delta_sums(MF_T t, u32 words, DeltaOneRow row, MF_LOCAL(const F4) s) {
  F4 sums = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) {
      sums.v[c] = mf_fma(s[i].v[c], row.v[i / 4u].v[i % 4u], sums.v[c]);
    }
  }
  store4(MF_SHARED_AT(t, f32, words * 4u) + (t.simd * kDeltaOneDim + t.lane * 4u), sums);
}

/// A column's sum over the SIMD groups.
MF_FN f32 sum_of_parts(MF_SHARED(f32) parts) {
  f32 sums[kDeltaOneSimds];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneSimds; ++i) sums[i] = parts[i * kDeltaOneDim];
  MF_UNROLL
  for (u32 step = 1u; step < kDeltaOneSimds; step *= 2u) {
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneSimds; i += 2u * step) sums[i] = sums[i] + sums[i + step];
  }
  return sums[0];
}

/// Four columns of what comes out, of a lane. A few parts at a time: registers are others'.
MF_FN F4 sum_delta_outs(MF_T t) {
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, kDeltaOneSums * 4u) + t.lane * 4u;
  F4 halves[2];
  MF_UNROLL
  for (u32 half = 0u; half < 2u; ++half) {
    F4 sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    MF_ROLLED
    for (u32 i = 0u; i < kDeltaOneSimds / 2u; i += 4u) {
      MF_SHARED(f32) four = parts + (half * (kDeltaOneSimds / 2u) + i) * kDeltaOneDim;
      const F4 low = plus(load4(four), load4(four + kDeltaOneDim));
      const F4 high = plus(load4(four + 2u * kDeltaOneDim), load4(four + 3u * kDeltaOneDim));
      sum = i == 0u ? plus(low, high) : plus(sum, plus(low, high));
    }
    halves[half] = sum;
  }
  return plus(halves[0], halves[1]);
}

/// The head's results in one SIMD group, which go on through the norm and the gate.
MF_FN void store_delta_head(MF_T t, MF_PARAMS(DeltaOneParams) p, F4 outs, F4 scales, F4 gates,
                            MF_GLOBAL(f32) out) {
  const DeltaScalars scalars = load_delta_scalars(t);
  const F4 deltas = load4(MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u) + t.lane * 4u);
  F4 four = times(outs, scalars.out);
  MF_UNROLL
  for (u32 c = 0u; c < 4u; ++c) four.v[c] = mf_fma(scalars.match, deltas.v[c], four.v[c]);
  if (p.has_norm != 0u) {
    const f32 squares = simd_sum(t, add_squares(0.0f, four));
    four = times(times(four, norm_factor(squares, kDeltaOneDim, p.epsilon)), scales);
    if (p.has_gate != 0u) four = times(four, gates);
  }
  store4(out + t.lane * 4u, four);
}

/// Group y: a key head; x: one of its value heads. kDeltaOneThreads threads. All rows begin on
/// 16-byte boundaries.
MF_FITS(kDeltaOneThreads, 1)
MF_KERNEL(gated_delta_one, DeltaOneParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a),
          MF_READ(2, f32, b), MF_CONST(3, f32, a_log), MF_CONST(4, f32, dt_bias),
          MF_CONST(5, f32, weight), MF_READ(6, f32, gate), MF_WRITE(7, f32, state),
          MF_WRITE(8, f32, out)) {
  MF_THREAD_EARLY;
  const u32 head = t.group.y * p.heads_per_key + t.group.x;
  const u32 col = t.lane * 4u;
  const bool has_cells = t.simd < kDeltaOneSimds;
  const bool has_decay = t.simd == kDeltaDecaySimd;
  const bool has_head = t.simd == kDeltaHeadSimd;
  MF_GLOBAL(f32)
  cells = state + (head * (kDeltaOneDim * kDeltaOneDim) + t.simd * (4u * kDeltaOneDim) + col);
  if (p.early == 0u) await_inputs(t);
  const F4 ones = {{1.0f, 1.0f, 1.0f, 1.0f}};
  F4 s[kDeltaOneRows];
  F4 scales = ones;
  F4 gates = ones;
  if (has_cells) {
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneRows; ++i) {
      s[i] = load4(MF_CAST(const f32, cells) + delta_row(i) * kDeltaOneDim);
    }
  }
  if (has_head && p.has_norm != 0u) scales = load4(weight + col);
  const f32 bias = has_decay ? dt_bias[head] : 0.0f;
  const f32 speed = has_decay ? mf_exp(a_log[head]) : 0.0f;
  if (p.early != 0u) await_inputs(t);
  const u32 own = t.index - kDeltaOneSimds * 32u;  // the column of a thread that sums up one
  f32 v = 0.0f;
  f32 rate = 0.0f;
  if (t.simd < 2u) {
    const u32 row = (t.group.y + (t.simd == 0u ? 0u : p.key_heads)) * kDeltaOneDim;
    store4(MF_SHARED_AT(t, f32, (t.simd == 0u ? kDeltaOneQuery : kDeltaOneKey) * 4u) + col,
           load4(qkv + (row + col)));
  } else if (!has_cells) {
    if (own < kDeltaOneDim) v = qkv[(2u * p.key_heads + head) * kDeltaOneDim + own];
    if (has_decay) rate = a[head];
    if (has_head) rate = b[head];
    if (has_head && p.has_gate != 0u) gates = load4(gate + (head * p.gate_head_stride + col));
  }
  barrier(t);
  DeltaOneRow key;
  if (has_cells) {
    key = load_delta_row(t, kDeltaOneKey);
    store_delta_sums(t, kDeltaOneRecalls, key, s);
    store_delta_sums(t, kDeltaOneSums, load_delta_row(t, kDeltaOneQuery), s);
  } else {
    store_delta_scalar(t, p, rate, bias, speed);
  }
  barrier(t);
  F4 outs = ones;
  if (has_cells) {
    const f32 decay = delta_scalars_at(t)[kDeltaDecaySimd];
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneRows; ++i) s[i] = times(s[i], decay);
  } else if (has_head) {
    outs = sum_delta_outs(t);
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) gates.v[c] = silu(gates.v[c]);
  } else {
    const f32 sum = sum_of_parts(MF_SHARED_AT(t, f32, kDeltaOneRecalls * 4u) + own);
    const DeltaScalars scalars = load_delta_scalars(t);
    MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u)
    [own] = mf_fma(scalars.recall, sum, scalars.value * v);
  }
  barrier(t);
  if (has_cells) {
    const F4 deltas = load4(MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u) + col);
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaOneRows; ++i) {
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) {
        s[i].v[c] = mf_fma(key.v[i / 4u].v[i % 4u], deltas.v[c], s[i].v[c]);
      }
      store4(cells + delta_row(i) * kDeltaOneDim, s[i]);
    }
  } else if (has_head) {
    store_delta_head(t, p, outs, scales, gates, out + head * p.out_head_stride);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
