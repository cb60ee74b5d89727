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
/// SIMD groups that have work of their own while the others wait.
enum : u32 {
  kDeltaDecaySimd = 4,
  kDeltaBetaSimd = 5,
  kDeltaKeySimd = 6,
  kDeltaQuerySimd = 7,
  kDeltaMatchSimd = 8,
  kDeltaNormSimd = 15
};

MF_FN u32 delta_row(u32 i) { return i / 4u * 64u + i % 4u; }

/// A thread's rows of a key or a query.
struct DeltaOneRow {
  F4 v[2];
};
MF_FN DeltaOneRow load_delta_row(MF_T t, MF_GLOBAL(const f32) from) {
  DeltaOneRow row;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) row.v[i] = load4(from + (i * 64u + t.simd * 4u));
  return row;
}

/// Decay, beta and what a token's rows give, from a SIMD group each.
MF_FN void store_delta_scalars(MF_T t, MF_PARAMS(DeltaOneParams) p, MF_GLOBAL(const f32) query,
                               MF_GLOBAL(const f32) key, f32 rate, f32 weight, f32 bias,
                               f32 speed) {
  MF_SHARED(f32) scalars = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u);
  if (t.simd == kDeltaDecaySimd) {
    const f32 decay = delta_decay(rate, bias, speed);
    if (t.lane == 0u) scalars[0] = decay;
  } else if (t.simd == kDeltaBetaSimd) {
    const f32 beta = sigmoid(weight);
    if (t.lane == 0u) scalars[1] = beta;
  } else if (t.simd >= kDeltaKeySimd && t.simd <= kDeltaMatchSimd) {
    DeltaRow a;
    DeltaRow b;
    a.load(t.simd == kDeltaQuerySimd ? query : key, t.lane % 8u * 4u, 32u, kDeltaOneDim, 1u);
    b.load(t.simd == kDeltaKeySimd ? key : query, t.lane % 8u * 4u, 32u, kDeltaOneDim, 1u);
    f32 value = delta_product<8u>(t, &a, &b);
    if (t.simd == kDeltaKeySimd) value = delta_scale(1.0f, value);
    if (t.simd == kDeltaQuerySimd) value = delta_scale(p.query_factor, value);
    if (t.lane == 0u) scalars[2u + t.simd - kDeltaKeySimd] = value;
  }
}
MF_FN DeltaScalars load_delta_scalars(MF_T t) {
  MF_SHARED(f32) scalars = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u);
  return delta_scalars(scalars[0], scalars[1], scalars[2], scalars[3], scalars[4]);
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

/// What a column recalls becomes its delta, what comes out of it goes on to the head's results. v
/// is the value of a thread of the first.
MF_FN void sum_delta_columns(MF_T t, f32 v) {
  const u32 own = t.index % kDeltaOneDim;
  const bool is_recall = t.index < kDeltaOneDim;
  const u32 from = is_recall ? kDeltaOneRecalls : kDeltaOneSums;
  const f32 sum = sum_of_parts(MF_SHARED_AT(t, f32, from * 4u) + own);
  const DeltaScalars scalars = load_delta_scalars(t);
  const u32 to = is_recall ? kDeltaOneDeltas : kDeltaOneOuts;
  MF_SHARED_AT(t, f32, to * 4u)
  [own] = is_recall ? mf_fma(scalars.recall, sum, scalars.value * v) : scalars.out * sum;
}

/// The head's results in one SIMD group, which go on through the norm and the gate.
MF_FN void store_delta_head(MF_T t, MF_PARAMS(DeltaOneParams) p, F4 deltas, F4 scales, F4 gates,
                            MF_GLOBAL(f32) out) {
  const f32 match = load_delta_scalars(t).match;
  F4 four = load4(MF_SHARED_AT(t, f32, kDeltaOneOuts * 4u) + t.lane * 4u);
  MF_UNROLL
  for (u32 c = 0u; c < 4u; ++c) four.v[c] = mf_fma(match, deltas.v[c], four.v[c]);
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
  MF_GLOBAL(f32)
  cells = state + (head * (kDeltaOneDim * kDeltaOneDim) + t.simd * (4u * kDeltaOneDim) + col);
  if (p.early == 0u) await_inputs(t);
  F4 s[kDeltaOneRows];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    s[i] = load4(MF_CAST(const f32, cells) + delta_row(i) * kDeltaOneDim);
  }
  F4 scales = {{1.0f, 1.0f, 1.0f, 1.0f}};
  F4 gates = scales;
  const bool has_decay = t.simd == kDeltaDecaySimd;
  const bool has_head = t.simd == kDeltaNormSimd;
  if (has_head && p.has_norm != 0u) scales = load4(weight + col);
  const f32 bias = has_decay ? dt_bias[head] : 0.0f;
  const f32 speed = has_decay ? mf_exp(a_log[head]) : 0.0f;
  MF_GLOBAL(const f32) query = qkv + t.group.y * kDeltaOneDim;
  MF_GLOBAL(const f32) key = query + p.key_heads * kDeltaOneDim;
  MF_GLOBAL(const f32) value = qkv + (2u * p.key_heads + head) * kDeltaOneDim;
  if (p.early != 0u) await_inputs(t);
  const DeltaOneRow keys = load_delta_row(t, key);
  const DeltaOneRow queries = load_delta_row(t, query);
  const f32 v = t.index < kDeltaOneDim ? value[t.index] : 0.0f;
  if (has_head && p.has_gate != 0u) gates = load4(gate + (head * p.gate_head_stride + col));
  store_delta_scalars(t, p, query, key, has_decay ? a[head] : 0.0f,
                      t.simd == kDeltaBetaSimd ? b[head] : 0.0f, bias, speed);
  store_delta_sums(t, kDeltaOneRecalls, keys, s);
  store_delta_sums(t, kDeltaOneSums, queries, s);
  barrier(t);
  if (t.index < 2u * kDeltaOneDim) {
    sum_delta_columns(t, v);
  } else if (has_head && p.has_gate != 0u) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) gates.v[c] = silu(gates.v[c]);
  }
  const f32 decay = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[0];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) s[i] = times(s[i], decay);
  barrier(t);
  const F4 deltas = load4(MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u) + col);
  if (has_head) store_delta_head(t, p, deltas, scales, gates, out + head * p.out_head_stride);
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) {
      s[i].v[c] = mf_fma(keys.v[i / 4u].v[i % 4u], deltas.v[c], s[i].v[c]);
    }
    store4(cells + delta_row(i) * kDeltaOneDim, s[i]);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
