// The gated delta rule for one token, with the norm of its heads and their gate: a group owns a
// whole value head, as a norm needs it. The state of 64 KiB is on its way to registers before the
// token is there, if the host says that nobody still writes it. What is summed in which order is
// what gated_delta.h and norm.h say.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Of four columns, in a thread: two in every 32.
enum : u32 { kDeltaOneRows = 8 };
/// SIMD groups that have work of their own while the others wait.
enum : u32 { kDeltaDecaySimd = 4, kDeltaBetaSimd = 5, kDeltaMatchSimd = 8, kDeltaNormSimd = 15 };

/// The value head of the group.
MF_FN u32 delta_head(MF_T t, MF_PARAMS(DeltaOneParams) p) {
  return t.group.y * p.heads_per_key + t.group.x;
}

/// The thread's row i of the state.
MF_FN u32 delta_row(MF_T t, u32 i) { return i / 2u * 32u + t.simd * 2u + i % 2u; }

MF_FN void load_cells(MF_T t, MF_PARAMS(DeltaParams) p, MF_GLOBAL(const f32) cells,
                      MF_LOCAL(F4) s) {
  const u32 col = t.lane * 4u;
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    const F4 nothing = {{0.0f, 0.0f, 0.0f, 0.0f}};
    const u32 row = delta_row(t, i);
    s[i] =
        row < p.key_dim && col < p.value_dim ? load4(cells + (row * p.value_dim + col)) : nothing;
  }
}

MF_FN void store_cells(MF_T t, MF_PARAMS(DeltaParams) p, MF_GLOBAL(f32) cells,
                       MF_LOCAL(const F4) s) {
  const u32 col = t.lane * 4u;
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; ++i) {
    const u32 row = delta_row(t, i);
    if (row < p.key_dim && col < p.value_dim) store4(cells + (row * p.value_dim + col), s[i]);
  }
}

/// One SIMD group brings the query, the next one the key, divided by its length and multiplied by
/// `factor`.
MF_FN void stage_delta_row(MF_T t, MF_PARAMS(DeltaParams) p, MF_GLOBAL(const f32) from,
                           f32 factor) {
  F4 own = {{0.0f, 0.0f, 0.0f, 0.0f}};
  if (t.lane * 4u < p.key_dim) own = load4(from + t.lane * 4u);
  own = times(own, factor / mf_sqrt(simd_sum(t, add_squares(0.0f, own)) + 1e-6f));
  MF_SHARED(f32) to = MF_SHARED_AT(t, f32, 0u) + (t.lane * 8u + (t.simd == 0u ? 2u : 0u));
  MF_UNROLL
  for (u32 i = 0u; i < 4u; ++i) to[i / 2u * 4u + i % 2u] = own.v[i];
}

/// The product of query and key, in one SIMD group.
MF_FN void store_delta_match(MF_T t) {
  MF_SHARED(f32) units = MF_SHARED_AT(t, f32, 0u) + t.lane * 8u;
  f32 match = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < 2u; ++i) {
    const F4 unit = load4(units + i * 4u);
    match = mf_fma(unit.v[2], unit.v[0], match);
    match = mf_fma(unit.v[3], unit.v[1], match);
  }
  match = simd_sum(t, match);
  if (t.lane == 0u) MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[2] = match;
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

/// A thread's part of k s and q s, where s becomes decay s.
MF_FN void recall_cells(MF_T t, MF_LOCAL(F4) s) {
  const f32 decay = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[0];
  F4 recalls[2];
  F4 outs[2];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; i += 2u) {
    const F4 unit = load4(MF_SHARED_AT(t, f32, 0u) + delta_row(t, i) * 2u);
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) {
        s[i + r].v[c] = s[i + r].v[c] * decay;
        recalls[r].v[c] = mf_fma(s[i + r].v[c], unit.v[r], i == 0u ? 0.0f : recalls[r].v[c]);
        outs[r].v[c] = mf_fma(s[i + r].v[c], unit.v[r + 2u], i == 0u ? 0.0f : outs[r].v[c]);
      }
    }
  }
  const u32 at = t.simd * kDeltaOneDim + t.lane * 4u;
  store4(MF_SHARED_AT(t, f32, kDeltaOneRecalls * 4u) + at, plus(recalls[0], recalls[1]));
  store4(MF_SHARED_AT(t, f32, kDeltaOneSums * 4u) + at, plus(outs[0], outs[1]));
}

/// The head's results in one SIMD group, which go on through the norm and the gate.
MF_FN void store_delta_head(MF_T t, MF_PARAMS(DeltaOneParams) p, F4 deltas, F4 scales, F4 gates,
                            MF_GLOBAL(f32) out) {
  const u32 col = t.lane * 4u;
  const f32 match = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u)[2];
  F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
  if (col < p.delta.value_dim) {
    four = load4(MF_SHARED_AT(t, f32, kDeltaOneOuts * 4u) + col);
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) four.v[c] = mf_fma(match, deltas.v[c], four.v[c]);
  }
  if (p.has_norm != 0u) {
    const f32 squares = simd_sum(t, add_squares(0.0f, four));
    four = times(times(four, norm_factor(squares, p.delta.value_dim, p.epsilon)), scales);
    if (p.has_gate != 0u) four = times(four, gates);
  }
  if (col < p.delta.value_dim)
    store4(out + (delta_head(t, p) * p.delta.out.head_stride + col), four);
}

/// s += k delta
MF_FN void add_deltas(MF_T t, F4 deltas, MF_LOCAL(F4) s) {
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaOneRows; i += 2u) {
    const F4 unit = load4(MF_SHARED_AT(t, f32, 0u) + delta_row(t, i) * 2u);
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      MF_UNROLL
      for (u32 c = 0u; c < 4u; ++c) {
        s[i + r].v[c] = mf_fma(unit.v[r], deltas.v[c], s[i + r].v[c]);
      }
    }
  }
}

/// Group y: a key head; x: one of its value heads. kDeltaOneThreads threads. Keys and values of up
/// to kDeltaOneDim, all rows in units of 16 bytes.
MF_FITS(kDeltaOneThreads, 1)
MF_KERNEL(gated_delta_one, DeltaOneParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a),
          MF_READ(2, f32, b), MF_CONST(3, f32, a_log), MF_CONST(4, f32, dt_bias),
          MF_CONST(5, f32, weight), MF_READ(6, f32, gate), MF_WRITE(7, f32, state),
          MF_WRITE(8, f32, out)) {
  MF_THREAD_EARLY;
  MF_PARAMS(DeltaParams) d = p.delta;
  const u32 head = delta_head(t, p);
  const u32 col = t.lane * 4u;
  MF_GLOBAL(f32) cells = state + static_cast<u64>(head) * d.key_dim * d.value_dim;
  F4 s[kDeltaOneRows];
  if (p.early != 0u) load_cells(t, d, MF_CAST(const f32, cells), s);
  const F4 ones = {{1.0f, 1.0f, 1.0f, 1.0f}};
  F4 scales = ones;
  F4 gates = ones;
  const bool has_decay = t.simd == kDeltaDecaySimd;
  const bool has_head = t.simd == kDeltaNormSimd && col < d.value_dim;
  if (has_head && p.has_norm != 0u) scales = load4(weight + col);
  const f32 bias = has_decay ? dt_bias[head] : 0.0f;
  const f32 speed = has_decay ? mf_exp(a_log[head]) : 0.0f;
  MF_GLOBAL(const f32)
  row = qkv + (t.group.y + (t.simd == 0u ? 0u : d.key_heads)) * d.key_dim;
  const f32 factor = t.simd == 0u ? 1.0f / mf_sqrt(static_cast<f32>(d.key_dim)) : 1.0f;
  await_inputs(t);
  if (p.early == 0u) load_cells(t, d, MF_CAST(const f32, cells), s);
  const bool is_column = t.index < d.value_dim;  // of a thread that sums up what is recalled of it
  const f32 v = is_column ? qkv[2u * d.key_heads * d.key_dim + head * d.value_dim + t.index] : 0.0f;
  if (has_head && p.has_gate != 0u) gates = load4(gate + (head * p.gate_head_stride + col));
  MF_SHARED(f32) scalars = MF_SHARED_AT(t, f32, kDeltaOneScalars * 4u);
  if (t.simd < 2u) stage_delta_row(t, d, row, factor);
  if (has_decay) {
    const f32 decay = mf_exp(-speed * softplus(a[head] + bias));
    if (t.lane == 0u) scalars[0] = decay;
  } else if (t.simd == kDeltaBetaSimd) {
    const f32 beta = sigmoid(b[head]);
    if (t.lane == 0u) scalars[1] = beta;
  }
  barrier(t);
  recall_cells(t, s);
  barrier(t);
  if (is_column) {
    const f32 recall = sum_of_parts(MF_SHARED_AT(t, f32, kDeltaOneRecalls * 4u) + t.index);
    MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u)[t.index] = scalars[1] * (v - recall);
  } else if (t.index >= kDeltaOneDim && t.index < kDeltaOneDim + d.value_dim) {
    const u32 own = t.index - kDeltaOneDim;
    MF_SHARED_AT(t, f32, kDeltaOneOuts * 4u)
    [own] = sum_of_parts(MF_SHARED_AT(t, f32, kDeltaOneSums * 4u) + own);
  } else if (t.simd == kDeltaMatchSimd) {
    store_delta_match(t);
  } else if (has_head && p.has_gate != 0u) {
    MF_UNROLL
    for (u32 c = 0u; c < 4u; ++c) gates.v[c] = silu(gates.v[c]);
  }
  barrier(t);
  F4 deltas = {{0.0f, 0.0f, 0.0f, 0.0f}};
  if (col < d.value_dim) deltas = load4(MF_SHARED_AT(t, f32, kDeltaOneDeltas * 4u) + col);
  if (t.simd == kDeltaNormSimd) store_delta_head(t, p, deltas, scales, gates, out);
  add_deltas(t, deltas, s);
  store_cells(t, d, cells, s);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
