// Latent attention of few tokens where a head's matrices are 128 rows of 512 columns of 4 bits: the
// launches of latent.h, with a group a head. Weights wait in shared memory and loops are rolled, so
// that groups have few registers, stand beside those of the launch before and are not held up by
// instructions that have to be fetched.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// Starts to copy a head's codes, scales and biases.
MF_FN void copy_head(MF_T t, MF_PARAMS(HeadMatrix) m, MF_GLOBAL(const u8) data,
                     MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u32 head) {
  const u64 row = static_cast<u64>(head) * m.head_stride + m.row_begin;
  const u32 at = t.index * 4u;
  MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u) + at;
  MF_GLOBAL(const u32) from = MF_CAST(const u32, data) + (row * kLatentOneOctets + at);
  MF_UNROLL
  for (u32 i = 0u; i < kLatentOneFactors; i += kLatentOneThreads * 4u) {
    copy_async4(t, codes + i, from + i);
  }
  const u64 half = row * (kLatentOneGroups / 2u) + at;  // in words
  MF_SHARED(u32) halves = MF_SHARED_AT(t, u32, kLatentOneRest * 4u);
  if (at < kLatentOneCount / 2u) {
    copy_async4(t, halves + at, MF_CAST(const u32, scales) + half);
    copy_async4(t, halves + (kLatentOneCount / 2u + at), MF_CAST(const u32, biases) + half);
  }
  copies_commit(t);
}

/// When the copies are there: makes the factors from their halves.
MF_FN void make_factors(MF_T t, MF_PARAMS(HeadMatrix) m) {
  MF_SHARED(u32) halves = MF_SHARED_AT(t, u32, kLatentOneRest * 4u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, kLatentOneFactors * 4u);
  copies_wait<0>(t);
  barrier(t);
  MF_ROLLED
  for (u32 i = t.index; i < kLatentOneCount; i += t.threads) {
    factors[i * 2u] = half_of_pair(halves[i / 2u], i & 1u, m.weight.scales);
    factors[i * 2u + 1u] = half_of_pair(halves[kLatentOneCount / 2u + i / 2u], i & 1u, m.weight.scales);
  }
  barrier(t);
}

/// One head's query over the latents: a thread has eight columns of two parts of rows.
MF_FN void latent_query_one(MF_T t, MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  static_assert(kLatentOneParts * static_cast<u32>(kHeadPartRows) == kLatentOneRows, "");
  enum : u32 { kOwn = kLatentOneParts * kLatentOneOctets / kLatentOneThreads };
  const u32 octet = t.index % kLatentOneOctets;
  const u32 first = t.index / kLatentOneOctets * kOwn;
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, kLatentOneRest * 4u);
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kLatentOneStaged * 4u);
  if (t.index < kLatentOneRows) staged[t.index] = x[t.index];
  barrier(t);
  MF_ROLLED
  for (u32 part = first; part < first + kOwn; ++part) {
    const u32 begin = part * kHeadPartRows;
    MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u) + (begin * kLatentOneOctets + octet);
    MF_SHARED(f32)
    factors = MF_SHARED_AT(t, f32, kLatentOneFactors * 4u) +
              (begin * kLatentOneGroups + octet / 8u) * 2u;
    f32 sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    MF_ROLLED
    for (u32 r = 0u; r < kHeadPartRows; r += 2u) {
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        const u32 word = codes[(r + i) * kLatentOneOctets];
        const f32 factor = staged[begin + r + i];
        const f32 scale = factors[(r + i) * kLatentOneGroups * 2u];
        const f32 bias = factors[(r + i) * kLatentOneGroups * 2u + 1u];
        MF_UNROLL
        for (u32 k = 0u; k < 8u; ++k) {
          const f32 code = code_float<4u>(word, k * 4u);
          sums[k] = mf_fma(factor, mf_fma(scale, code, bias), sums[k]);
        }
      }
    }
    MF_UNROLL
    for (u32 k = 0u; k < 8u; k += 4u) {
      const F4 four = {{sums[k], sums[k + 1u], sums[k + 2u], sums[k + 3u]}};
      store4(parts + (part * kLatentOneCols + octet * 8u + k), four);
    }
  }
  barrier(t);
  f32 total = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < kLatentOneParts; ++i) total = total + parts[i * kLatentOneCols + t.index];
  out[t.index] = total;
}

/// Group x: a head, or one of p.groups behind them for what a token has besides; y: a token.
MF_FITS(640, 2)
MF_KERNEL(latent_queries_one4, LatentQueriesParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_READ(3, f32, q), MF_CONST(4, f32, norm),
          MF_READ(5, i32, positions), MF_CONST(6, f32, frequencies), MF_CONST(7, u64, pages),
          MF_WRITE(8, f32, latent), MF_WRITE(9, f32, query)) {
  MF_THREAD_EARLY;
  if (p.early != 0u) let_next_start(t);
  const u32 token = t.group.y;
  const u32 head = t.group.x;
  if (head >= p.heads) {
    return place_latent(t, p, head - p.heads, latent, norm, positions, frequencies, pages, q,
                        query);
  }
  copy_head(t, p.up, data, scales, biases, head);
  make_factors(t, p.up);
  await_inputs(t);
  latent_query_one(t, q + (token * p.q.token_stride + head * p.q.head_stride),
                   query + (token * p.query.token_stride + head * p.query.head_stride));
}

/// Rows of a head times its mixture: 16 lanes a row, each 32 columns of four rows.
MF_FN void multiply_one(MF_T t, MF_SHARED(f32) staged, MF_GLOBAL(f32) out) {
  enum : u32 {
    kLanes = kLatentOneOctets / 4u,
    kOwn = kLatentOneFactors / 4u / kLatentOneThreads,
    kStep = kLatentOneParts * 2u  // rows at once
  };
  static_assert(kStep * kLanes == static_cast<u32>(kLatentOneThreads), "");
  const u32 pack = t.index % kLanes;
  const u32 row = t.index / kLanes;
  MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u) + (row * kLatentOneOctets + pack * 4u);
  f32 dots[kOwn] = {};
  f32 sum = 0.0f;
  MF_ROLLED
  for (u32 half = 0u; half < 2u; ++half) {
    W2 words[kOwn];
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      words[i] = load2(codes + (i * kStep * kLatentOneOctets + half * 2u));
    }
    MF_UNROLL
    for (u32 q = 0u; q < 4u; ++q) {
      const F4 x = load4(staged + staged_at(pack * 32u + half * 16u + q * 4u));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) {
        sum += x.v[k];
        const u32 bit = (q * 4u + k) * 4u;
        MF_UNROLL
        for (u32 i = 0u; i < kOwn; ++i) {
          const f32 code = code_float<4u>(words[i].v[bit / 32u], bit % 32u);
          dots[i] = mf_fma(code, x.v[k], dots[i]);
        }
      }
    }
  }
  MF_SHARED(f32)
  factors = MF_SHARED_AT(t, f32, kLatentOneFactors * 4u) +
            (row * kLatentOneGroups + pack / 2u) * 2u;
  MF_UNROLL
  for (u32 i = 0u; i < kOwn; ++i) {
    const f32 scale = factors[i * kStep * kLatentOneGroups * 2u];
    const f32 bias = factors[i * kStep * kLatentOneGroups * 2u + 1u];
    f32 all = mf_fma(bias, sum, mf_fma(scale, dots[i], 0.0f));
    MF_UNROLL
    for (u32 mask = kLanes / 2u; mask > 0u; mask /= 2u) all += simd_shuffle_xor(t, all, mask);
    if (pack == 0u) out[row + i * kStep] = all;
  }
}

/// Group x: a head; y: a token.
MF_FITS(640, 2)
MF_KERNEL(latent_values_one4, LatentValuesParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_READ(3, f32, mixed), MF_READ(4, f32, partials),
          MF_WRITE(5, f32, out)) {
  MF_THREAD_EARLY;
  const u32 head = t.group.x;
  const u32 token = t.group.y;
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kLatentOneRest * 4u);
  copy_head(t, p.up, data, scales, biases, head);
  make_factors(t, p.up);
  await_inputs(t);
  stage_mixture<1u>(t, p.attention, mixed, partials, token, head, staged);
  barrier(t);
  multiply_one(t, staged, out + (token * p.out.token_stride + head * p.out.head_stride));
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
