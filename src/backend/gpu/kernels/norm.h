// Root mean square norms: a SIMD group a row where rows are short, a group where they are long.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// The lane's share of the sum of squares of a row: columns first, first + step, ...
MF_FN f32 partial_squares(MF_GLOBAL(const f32) row, u32 first, u32 step, u32 cols) {
  f32 sum = 0.0f;
  for (u32 c = first; c < cols; c += step) sum = mf_fma(row[c], row[c], sum);
  return sum;
}

/// One SIMD group a row.
MF_KERNEL(rms_norm_narrow, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, weight),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  const u32 row = t.group.x * t.simds + t.simd;
  if (row >= p.rows) return;
  MF_GLOBAL(const f32) from = a + row_at(p.a, row);
  MF_GLOBAL(f32) to = out + row_at(p.out, row);
  const f32 squares = simd_sum(t, partial_squares(from, t.lane, 32u, p.cols));
  const f32 factor = 1.0f / mf_sqrt(squares / static_cast<f32>(p.cols) + p.factor);
  for (u32 c = t.lane; c < p.cols; c += 32u) {
    const f32 scaled = from[c] * factor;
    to[c] = p.has_weight != 0u ? scaled * weight[c] : scaled;
  }
}

/// rms_norm_narrow times activation(gate).
MF_KERNEL(rms_norm_gated, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, weight),
          MF_READ(2, f32, gate), MF_WRITE(3, f32, out)) {
  MF_THREAD;
  const u32 row = t.group.x * t.simds + t.simd;
  if (row >= p.rows) return;
  MF_GLOBAL(const f32) from = a + row_at(p.a, row);
  MF_GLOBAL(const f32) gates = gate + row_at(p.b, row);
  MF_GLOBAL(f32) to = out + row_at(p.out, row);
  const f32 squares = simd_sum(t, partial_squares(from, t.lane, 32u, p.cols));
  const f32 factor = 1.0f / mf_sqrt(squares / static_cast<f32>(p.cols) + p.factor);
  for (u32 c = t.lane; c < p.cols; c += 32u) {
    to[c] = from[c] * factor * weight[c] * activate(gates[c], p.activation);
  }
}

/// out = rms_norm of the last of: sum0, the slots of a row in router order or else the base; sum1,
/// that and the first addend; sum2, that and the second. All of them are written. One group a row,
/// a thread every 256th four columns. Shared: one float a SIMD group.
MF_KERNEL(rms_norm_chain, ChainParams, MF_READ(0, f32, slots), MF_READ(1, f32, slot_weights),
          MF_READ(2, f32, base), MF_READ(3, f32, addend1), MF_READ(4, f32, addend2),
          MF_CONST(5, f32, weight), MF_WRITE(6, f32, sum0), MF_WRITE(7, f32, sum1),
          MF_WRITE(8, f32, sum2), MF_WRITE(9, f32, out)) {
  MF_THREAD_EARLY;
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, 0u);
  F4 scales[kChainVectorsMax];
  MF_UNROLL
  for (u32 v = 0u; v < kChainVectorsMax; ++v) {
    const u32 c = (v * kChainThreads + t.index) * 4u;
    if (c < p.cols) scales[v] = load4(weight + c);
  }
  await_inputs(t);
  const u64 row = static_cast<u64>(t.group.x) * p.cols;
  F4 values[kChainVectorsMax];
  f32 squares = 0.0f;
  MF_UNROLL
  for (u32 v = 0u; v < kChainVectorsMax; ++v) {
    const u32 c = (v * kChainThreads + t.index) * 4u;
    if (c >= p.cols) continue;
    F4 value = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (p.top_k == 0u) {
      value = load4(base + (row + c));
    } else {
      MF_GLOBAL(const f32) own = slot_weights + static_cast<u64>(t.group.x) * p.top_k;
      for (u32 rank = 0u; rank < p.top_k; ++rank) {
        const F4 slot = load4(slots + (row * p.top_k + static_cast<u64>(rank) * p.cols + c));
        MF_UNROLL
        for (u32 k = 0u; k < 4u; ++k) value.v[k] = mf_fma(own[rank], slot.v[k], value.v[k]);
      }
      store4(sum0 + (row + c), value);
    }
    if (p.adds > 0u) {
      const F4 more = load4(addend1 + (row + c));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) value.v[k] = value.v[k] + more.v[k];
      store4(sum1 + (row + c), value);
    }
    if (p.adds > 1u) {
      const F4 more = load4(addend2 + (row + c));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) value.v[k] = value.v[k] + more.v[k];
      store4(sum2 + (row + c), value);
    }
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) squares = mf_fma(value.v[k], value.v[k], squares);
    values[v] = value;
  }
  const f32 partial = simd_sum(t, squares);
  if (t.lane == 0u) sums[t.simd] = partial;
  barrier(t);
  f32 total = 0.0f;
  for (u32 s = 0u; s < t.simds; ++s) total = total + sums[s];
  const f32 factor = 1.0f / mf_sqrt(total / static_cast<f32>(p.cols) + p.epsilon);
  MF_UNROLL
  for (u32 v = 0u; v < kChainVectorsMax; ++v) {
    const u32 c = (v * kChainThreads + t.index) * 4u;
    if (c >= p.cols) continue;
    F4 scaled;
    MF_UNROLL
    for (u32 k = 0u; k < 4u; ++k) scaled.v[k] = values[v].v[k] * factor * scales[v].v[k];
    store4(out + (row + c), scaled);
  }
}

/// One group a row. Shared: one float a SIMD group.
MF_KERNEL(rms_norm_wide, RowsParams, MF_READ(0, f32, a), MF_READ(1, f32, weight),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  MF_SHARED(f32) sums = MF_SHARED_AT(t, f32, 0u);
  MF_GLOBAL(const f32) from = a + row_at(p.a, t.group.x);
  MF_GLOBAL(f32) to = out + row_at(p.out, t.group.x);
  const f32 partial = simd_sum(t, partial_squares(from, t.index, t.threads, p.cols));
  if (t.lane == 0u) sums[t.simd] = partial;
  barrier(t);
  f32 squares = 0.0f;
  for (u32 s = 0u; s < t.simds; ++s) squares = squares + sums[s];
  const f32 factor = 1.0f / mf_sqrt(squares / static_cast<f32>(p.cols) + p.factor);
  for (u32 c = t.index; c < p.cols; c += t.threads) {
    const f32 scaled = from[c] * factor;
    to[c] = p.has_weight != 0u ? scaled * weight[c] : scaled;
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
