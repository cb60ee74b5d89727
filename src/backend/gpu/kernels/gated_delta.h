// The gated delta rule, token after token: a group owns 32 columns of one head's state and keeps
// them in registers from the first token to the last.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 { kDeltaSimds = 8, kDeltaRowsMax = 32 };  // key_dim up to 256

MF_FN f32 softplus(f32 x) { return x > 20.0f ? x : mf_log1p(mf_exp(x)); }

/// One SIMD group: to = from / sqrt(sum of squares + 1e-6) * factor.
MF_FN void store_l2_normalized(MF_T t, MF_SHARED(f32) to, MF_GLOBAL(const f32) from, u32 count,
                               f32 factor) {
  f32 squares = 0.0f;
  for (u32 i = t.lane; i < count; i += 32u) squares = mf_fma(from[i], from[i], squares);
  const f32 scale = factor / mf_sqrt(simd_sum(t, squares) + 1e-6f);
  for (u32 i = t.lane; i < count; i += 32u) to[i] = from[i] * scale;
}

/// Sum over SIMD groups, in order, of what each left for this lane.
MF_FN f32 column_sum(MF_T t, MF_SHARED(f32) parts) {
  f32 sum = 0.0f;
  for (u32 s = 0u; s < kDeltaSimds; ++s) sum = sum + parts[s * 32u + t.lane];
  return sum;
}

/// Group x: 32 columns; y: a value head. 256 threads: a lane is a column, a SIMD group a range of
/// rows. Shared: q, k, and two sums of 8 x 32.
MF_KERNEL(gated_delta_heads, DeltaParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a),
          MF_READ(2, f32, b), MF_READ(3, f32, a_log), MF_READ(4, f32, dt_bias),
          MF_WRITE(5, f32, state), MF_WRITE(6, f32, out)) {
  MF_THREAD;
  MF_SHARED(f32) q = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) k = q + p.key_dim;
  MF_SHARED(f32) read_parts = k + p.key_dim;
  MF_SHARED(f32) out_parts = read_parts + kDeltaSimds * 32u;
  const u32 head = t.group.y;
  const u32 key_head = head / (p.value_heads / p.key_heads);
  const u32 col = t.group.x * 32u + t.lane;
  const bool inside = col < p.value_dim;
  const u32 rows = (p.key_dim + kDeltaSimds - 1u) / kDeltaSimds;
  const u32 first = t.simd * rows;
  MF_GLOBAL(f32) cells = state + static_cast<u64>(head) * p.key_dim * p.value_dim;
  f32 s[kDeltaRowsMax];
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaRowsMax; ++i) {
    const bool mine = i < rows && first + i < p.key_dim && inside;
    s[i] = mine ? cells[(first + i) * p.value_dim + col] : 0.0f;
  }
  for (u32 token = 0u; token < p.tokens; ++token) {
    MF_GLOBAL(const f32) row = qkv + token * p.qkv_stride;
    if (t.simd == 0u) {
      store_l2_normalized(t, q, row + key_head * p.key_dim, p.key_dim,
                          1.0f / mf_sqrt(static_cast<f32>(p.key_dim)));
    } else if (t.simd == 1u) {
      store_l2_normalized(t, k, row + (p.key_heads + key_head) * p.key_dim, p.key_dim, 1.0f);
    }
    barrier(t);
    const f32 rate = softplus(a[token * p.a_stride + head] + dt_bias[head]);
    const f32 decay = mf_exp(-mf_exp(a_log[head]) * rate);
    const f32 beta = sigmoid(b[token * p.b_stride + head]);
    f32 sum = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaRowsMax; ++i) {
      if (i < rows && first + i < p.key_dim) {
        s[i] = s[i] * decay;
        sum = mf_fma(s[i], k[first + i], sum);
      }
    }
    read_parts[t.simd * 32u + t.lane] = sum;
    barrier(t);
    const f32 v = inside ? row[2u * p.key_heads * p.key_dim + head * p.value_dim + col] : 0.0f;
    const f32 delta = beta * (v - column_sum(t, read_parts));
    sum = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < kDeltaRowsMax; ++i) {
      if (i < rows && first + i < p.key_dim) {
        s[i] = mf_fma(k[first + i], delta, s[i]);
        sum = mf_fma(s[i], q[first + i], sum);
      }
    }
    out_parts[t.simd * 32u + t.lane] = sum;
    barrier(t);
    if (t.simd == 0u && inside) {
      out[token * p.out.token_stride + head * p.out.head_stride + col] = column_sum(t, out_parts);
    }
  }
  MF_UNROLL
  for (u32 i = 0u; i < kDeltaRowsMax; ++i) {
    if (i < rows && first + i < p.key_dim && inside) {
      cells[(first + i) * p.value_dim + col] = s[i];
    }
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
