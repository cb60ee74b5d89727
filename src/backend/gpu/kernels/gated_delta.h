// The gated delta rule, token after token: a group owns 32 columns of one head's state, and eight
// lanes of a SIMD group the rows of one column, in registers from the first token to the last. So
// nothing but what tokens bring passes through shared memory, a block of tokens at a time, the next
// block on its way meanwhile.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

enum : u32 { kDeltaSimds = 8, kDeltaColumns = 32 };

MF_FN f32 softplus(f32 x) { return x > 20.0f ? x : mf_log1p(mf_exp(x)); }

/// Keys of up to UNITS * 32; a block of tokens, and where its parts lie in shared memory, in words.
template <u32 UNITS>
struct DeltaBlock {
  enum : u32 {
    kTokens = kDeltaTokenUnits / UNITS,
    kRows = UNITS * 32u,
    kQueries = 0u,
    kKeys = kTokens * kRows,
    kValues = 2u * kTokens * kRows,
    kOuts = kValues + kTokens * kDeltaColumns,
    kDecays = kOuts + kTokens * kDeltaColumns,
    kBetas = kDecays + kTokens
  };
};

/// A thread's part of a block on its way: every SIMD group has the queries and keys of some tokens,
/// a lane every 32nd unit of 4 rows of them.
template <u32 UNITS>
struct DeltaStage {
  enum : u32 {
    kTokens = DeltaBlock<UNITS>::kTokens,
    kOwn = 2u * kTokens / kDeltaSimds,  // queries and keys
    kParts = UNITS / 4u,                // of 128 rows
    kValuesOwn = kTokens / kDeltaSimds
  };
  F4 rows[kOwn * kParts];
  f32 values[kValuesOwn];
  f32 rate;
  f32 weight;

  MF_FN_MEMBER void load(MF_T t, MF_PARAMS(DeltaParams) p, MF_GLOBAL(const f32) qkv,
                         MF_GLOBAL(const f32) a, MF_GLOBAL(const f32) b, u32 first) {
    const u32 head = t.group.y;
    const u32 key_head = head / (p.value_heads / p.key_heads);
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      const u32 token = first + (t.simd * kOwn + i) / 2u;
      MF_GLOBAL(const f32)
      from = qkv + (static_cast<u64>(token) * p.qkv_stride + key_head * p.key_dim +
                    (i % 2u == 0u ? 0u : p.key_heads * p.key_dim));
      MF_UNROLL
      for (u32 part = 0u; part < kParts; ++part) {
        const u32 at = part * 128u + t.lane * 4u;
        F4 four = {{0.0f, 0.0f, 0.0f, 0.0f}};
        if (token < p.tokens && p.wide != 0u) {
          if (at < p.key_dim) four = load4(from + at);
        } else if (token < p.tokens) {
          MF_UNROLL
          for (u32 e = 0u; e < 4u; ++e) {
            if (at + e < p.key_dim) four.v[e] = from[at + e];
          }
        }
        rows[i * kParts + part] = four;
      }
    }
    const u32 col = t.group.x * kDeltaColumns + t.lane;
    MF_UNROLL
    for (u32 i = 0u; i < kValuesOwn; ++i) {
      const u32 token = first + t.simd * kValuesOwn + i;
      values[i] = token < p.tokens && col < p.value_dim
                      ? qkv[static_cast<u64>(token) * p.qkv_stride + 2u * p.key_heads * p.key_dim +
                            head * p.value_dim + col]
                      : 0.0f;
    }
    const u32 token = first + t.index;
    const bool has_token = t.index < kTokens && token < p.tokens;
    rate = has_token ? a[token * p.a_stride + head] : 0.0f;
    weight = has_token ? b[token * p.b_stride + head] : 0.0f;
  }

  /// Queries and keys divided by their lengths, sqrt(sum of squares + 1e-6).
  MF_FN_MEMBER void store(MF_T t, MF_PARAMS(DeltaParams) p, f32 bias, f32 speed) const {
    typedef DeltaBlock<UNITS> Block;
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      f32 squares = 0.0f;
      MF_UNROLL
      for (u32 part = 0u; part < kParts; ++part) {
        MF_UNROLL
        for (u32 e = 0u; e < 4u; ++e) {
          const f32 x = rows[i * kParts + part].v[e];
          squares = mf_fma(x, x, squares);
        }
      }
      const f32 factor = i % 2u == 0u ? 1.0f / mf_sqrt(static_cast<f32>(p.key_dim)) : 1.0f;
      const f32 scale = factor / mf_sqrt(simd_sum(t, squares) + 1e-6f);
      const u32 token = (t.simd * kOwn + i) / 2u;
      MF_SHARED(f32)
      to = MF_SHARED_AT(t, f32, (i % 2u == 0u ? Block::kQueries : Block::kKeys) * 4u) +
           token * Block::kRows;
      MF_UNROLL
      for (u32 part = 0u; part < kParts; ++part) {
        F4 four = rows[i * kParts + part];
        MF_UNROLL
        for (u32 e = 0u; e < 4u; ++e) four.v[e] = four.v[e] * scale;
        store4(to + (part * 128u + t.lane * 4u), four);
      }
    }
    MF_SHARED(f32) to_values = MF_SHARED_AT(t, f32, Block::kValues * 4u);
    MF_UNROLL
    for (u32 i = 0u; i < kValuesOwn; ++i) {
      to_values[(t.simd * kValuesOwn + i) * kDeltaColumns + t.lane] = values[i];
    }
    if (t.index < kTokens) {
      MF_SHARED_AT(t, f32, Block::kDecays * 4u)[t.index] = mf_exp(-speed * softplus(rate + bias));
      MF_SHARED_AT(t, f32, Block::kBetas * 4u)[t.index] = sigmoid(weight);
    }
  }
};

/// The sum of a column's eight lanes, of four sums each.
MF_FN f32 delta_sum(MF_T t, F4 parts) {
  f32 sum = (parts.v[0] + parts.v[1]) + (parts.v[2] + parts.v[3]);
  sum = sum + simd_shuffle_xor(t, sum, 1u);
  sum = sum + simd_shuffle_xor(t, sum, 2u);
  return sum + simd_shuffle_xor(t, sum, 4u);
}

/// One token: s = decay s + k delta, where delta = beta (v - k s); the result is q s.
template <u32 UNITS>
MF_FN void delta_token(MF_T t, MF_LOCAL(f32) s, u32 token) {
  typedef DeltaBlock<UNITS> Block;
  const u32 own = token * Block::kRows + t.lane % 8u * 4u;
  const u32 col = t.simd * 4u + t.lane / 8u;
  MF_SHARED(f32) queries = MF_SHARED_AT(t, f32, Block::kQueries * 4u) + own;
  MF_SHARED(f32) keys = MF_SHARED_AT(t, f32, Block::kKeys * 4u) + own;
  const f32 decay = MF_SHARED_AT(t, f32, Block::kDecays * 4u)[token];
  const f32 beta = MF_SHARED_AT(t, f32, Block::kBetas * 4u)[token];
  const f32 v = MF_SHARED_AT(t, f32, Block::kValues * 4u)[token * kDeltaColumns + col];
  F4 k[UNITS];
  F4 sums = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 i = 0u; i < UNITS; ++i) {
    k[i] = load4(keys + i * 32u);
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      s[i * 4u + e] = s[i * 4u + e] * decay;
      sums.v[e] = mf_fma(s[i * 4u + e], k[i].v[e], sums.v[e]);
    }
  }
  const f32 delta = beta * (v - delta_sum(t, sums));
  F4 outs = {{0.0f, 0.0f, 0.0f, 0.0f}};
  MF_UNROLL
  for (u32 i = 0u; i < UNITS; ++i) {
    const F4 q = load4(queries + i * 32u);
    MF_UNROLL
    for (u32 e = 0u; e < 4u; ++e) {
      s[i * 4u + e] = mf_fma(k[i].v[e], delta, s[i * 4u + e]);
      outs.v[e] = mf_fma(s[i * 4u + e], q.v[e], outs.v[e]);
    }
  }
  const f32 out = delta_sum(t, outs);
  if (t.lane % 8u == 0u) {
    MF_SHARED_AT(t, f32, Block::kOuts * 4u)[token * kDeltaColumns + col] = out;
  }
}

template <u32 UNITS>
MF_FN void delta_columns(MF_T t, MF_PARAMS(DeltaParams) p, MF_GLOBAL(const f32) qkv,
                         MF_GLOBAL(const f32) a, MF_GLOBAL(const f32) b, MF_GLOBAL(const f32) a_log,
                         MF_GLOBAL(const f32) dt_bias, MF_GLOBAL(f32) state, MF_GLOBAL(f32) out) {
  typedef DeltaBlock<UNITS> Block;
  const u32 head = t.group.y;
  const u32 first_col = t.group.x * kDeltaColumns;
  const u32 col = first_col + t.simd * 4u + t.lane / 8u;
  MF_GLOBAL(f32) cells = state + static_cast<u64>(head) * p.key_dim * p.value_dim;
  f32 s[UNITS * 4u];
  MF_UNROLL
  for (u32 i = 0u; i < UNITS * 4u; ++i) {
    const u32 row = i / 4u * 32u + t.lane % 8u * 4u + i % 4u;
    s[i] = row < p.key_dim && col < p.value_dim ? cells[row * p.value_dim + col] : 0.0f;
  }
  const f32 bias = dt_bias[head];
  const f32 speed = mf_exp(a_log[head]);
  DeltaStage<UNITS> stage;
  stage.load(t, p, qkv, a, b, 0u);
  for (u32 first = 0u; first < p.tokens; first += Block::kTokens) {
    stage.store(t, p, bias, speed);
    barrier(t);
    stage.load(t, p, qkv, a, b, first + Block::kTokens);
    const u32 left = p.tokens - first;
    const u32 count = left < Block::kTokens ? left : static_cast<u32>(Block::kTokens);
    for (u32 token = 0u; token < count; ++token) delta_token<UNITS>(t, s, token);
    barrier(t);
    for (u32 token = t.simd; token < count; token += kDeltaSimds) {
      if (first_col + t.lane >= p.value_dim) continue;
      out[(first + token) * p.out.token_stride + head * p.out.head_stride + first_col + t.lane] =
          MF_SHARED_AT(t, f32, Block::kOuts * 4u)[token * kDeltaColumns + t.lane];
    }
  }
  MF_UNROLL
  for (u32 i = 0u; i < UNITS * 4u; ++i) {
    const u32 row = i / 4u * 32u + t.lane % 8u * 4u + i % 4u;
    if (row < p.key_dim && col < p.value_dim) cells[row * p.value_dim + col] = s[i];
  }
}

/// Group x: 32 columns; y: a value head. 256 threads.
MF_FITS(kDeltaSimds * 32u, 1u)
MF_KERNEL(gated_delta_heads, DeltaParams, MF_READ(0, f32, qkv), MF_READ(1, f32, a),
          MF_READ(2, f32, b), MF_READ(3, f32, a_log), MF_READ(4, f32, dt_bias),
          MF_WRITE(5, f32, state), MF_WRITE(6, f32, out)) {
  MF_THREAD;
  if (p.key_dim <= 128u) {
    delta_columns<4u>(t, p, qkv, a, b, a_log, dt_bias, state, out);
  } else {
    delta_columns<8u>(t, p, qkv, a, b, a_log, dt_bias, state, out);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
