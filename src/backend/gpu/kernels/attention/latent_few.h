// Latent attention of two to four tokens where a head's matrices are 128 rows of 512 columns of 4
// bits: the launches of latent.h. Weights wait in shared memory and loops are rolled, so that
// groups have few registers and stand beside those of the launch before and of the next one.
#pragma once

#include "backend/gpu/kernels/attention/latent.h"
#include "backend/gpu/kernels/attention/latent_params.h"
#include "backend/gpu/kernels/matmul/matrix_tile.h"
#include "backend/gpu/kernels/matmul/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A scale and a bias of each of `count` groups of columns side by side, from their halves, whose
/// copies have been started.
MF_FN void make_factors(MF_T t, u32 format, u32 halves_at, u32 factors_at, u32 count) {
  MF_SHARED(u32) halves = MF_SHARED_AT(t, u32, halves_at * 4u);
  MF_SHARED(f32) factors = MF_SHARED_AT(t, f32, factors_at * 4u);
  copies_wait<0>(t);
  barrier(t);
  MF_ROLLED
  for (u32 i = t.index; i < count; i += t.threads) {
    factors[i * 2u] = half_of_pair(halves[i / 2u], i & 1u, format);
    factors[i * 2u + 1u] = half_of_pair(halves[count / 2u + i / 2u], i & 1u, format);
  }
  barrier(t);
}

/// Starts to copy the group's columns of a head's rows.
MF_FN void copy_columns(MF_T t, MF_PARAMS(HeadMatrix) m, MF_GLOBAL(const u8) data,
                        MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u32 head) {
  enum : u32 { kPieces = kLatentOneOctets / 4u };
  static_assert(static_cast<u32>(kLatentOneQueryThreads) == kLatentOneRows, "a row's halves each");
  const u64 row = static_cast<u64>(head) * m.head_stride + m.row_begin;
  MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u);
  MF_GLOBAL(const u32)
  from = MF_CAST(const u32, data) +
         (row * (kLatentOneCols / 8u) + t.group.x * static_cast<u32>(kLatentOneOctets));
  MF_UNROLL
  for (u32 i = 0u; i < kPieces; ++i) {
    const u32 piece = i * kLatentOneQueryThreads + t.index;
    copy_async4(t, codes + piece * 4u,
                from + (piece / kPieces * (kLatentOneCols / 8u) + piece % kPieces * 4u));
  }
  const u64 half = (row + t.index) * (kLatentOneCols / 128u) + t.group.x;
  MF_SHARED(u32) halves = MF_SHARED_AT(t, u32, kLatentOneQuerySums * 4u) + t.index;
  copy_async1(t, halves, MF_CAST(const u32, scales) + half);
  copy_async1(t, halves + kLatentOneRows, MF_CAST(const u32, biases) + half);
  copies_commit(t);
}

/// Columns of a head's query over the latents: a thread has eight of them in two parts of rows.
MF_FN void latent_query_one(MF_T t, MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out) {
  enum : u32 { kOwn = 2u };
  static_assert(static_cast<u32>(kLatentOneParts) * kLatentOneOctets ==
                    static_cast<u32>(kOwn) * kLatentOneQueryThreads,
                "");
  const u32 octet = t.index % kLatentOneOctets;
  const u32 first = t.index / kLatentOneOctets * kOwn;
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, kLatentOneQuerySums * 4u);
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kLatentOneQueryStaged * 4u);
  staged[t.index] = x[t.index];
  barrier(t);
  MF_ROLLED
  for (u32 part = first; part < first + kOwn; ++part) {
    const u32 begin = part * kHeadPartRows;
    MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u) + (begin * kLatentOneOctets + octet);
    MF_SHARED(f32)
    factors = MF_SHARED_AT(t, f32, kLatentOneQueryFactors * 4u) + (begin * 4u + octet / 8u * 2u);
    f32 sums[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    MF_ROLLED
    for (u32 r = 0u; r < kHeadPartRows; r += 2u) {
      MF_UNROLL
      for (u32 i = 0u; i < 2u; ++i) {
        const u32 word = codes[(r + i) * kLatentOneOctets];
        const f32 factor = staged[begin + r + i];
        const f32 scale = factors[(r + i) * 4u];
        const f32 bias = factors[(r + i) * 4u + 1u];
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
      store4(parts + (part * kLatentOneQueryCols + octet * 8u + k), four);
    }
  }
  barrier(t);
  f32 total = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < kLatentOneParts; ++i) {
    total = total + parts[i * kLatentOneQueryCols + t.index];
  }
  out[t.group.x * kLatentOneQueryCols + t.index] = total;
}

/// Group x: columns; y: a token; z: a head, or behind the heads the token's other work.
MF_FITS(128, 8)
MF_KERNEL(latent_queries_few_w4, LatentQueriesParams, MF_CONST(0, u8, data),
          MF_CONST(1, u8, scales), MF_CONST(2, u8, biases), MF_READ(3, f32, q),
          MF_CONST(4, f32, norm), MF_READ(5, i32, positions), MF_CONST(6, f32, frequencies),
          MF_CONST(7, u64, pages), MF_WRITE(8, f32, latent), MF_WRITE(9, f32, query)) {
  MF_THREAD_EARLY;
  if (p.early != 0u) let_next_start(t);
  const u32 token = t.group.y;
  const u32 head = t.group.z;
  if (head >= p.heads) {
    const u32 group = (head - p.heads) * (kLatentOneCols / kLatentOneQueryCols) + t.group.x;
    return place_latent(t, p, group, latent, norm, positions, frequencies, pages, q, query);
  }
  copy_columns(t, p.up, data, scales, biases, head);
  make_factors(t, p.up.weight.scales, kLatentOneQuerySums, kLatentOneQueryFactors,
               kLatentOneRows * (kLatentOneQueryCols / 64u));
  await_inputs(t);
  latent_query_one(t, q + (token * p.q.token_stride + head * p.q.head_stride),
                   query + (token * p.query.token_stride + head * p.query.head_stride));
}

/// Starts to copy the group's rows of a head.
MF_FN void copy_rows_of_head(MF_T t, MF_PARAMS(HeadMatrix) m, MF_GLOBAL(const u8) data,
                             MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u32 head) {
  enum : u32 { kHalves = kLatentOneValueRows * (kLatentOneCols / 128u) };
  const u64 row = static_cast<u64>(head) * m.head_stride + m.row_begin +
                  t.group.x * static_cast<u32>(kLatentOneValueRows);
  const u32 at = t.index * 4u;
  MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u) + at;
  MF_GLOBAL(const u32) from = MF_CAST(const u32, data) + (row * (kLatentOneCols / 8u) + at);
  MF_UNROLL
  for (u32 i = 0u; i < kLatentOneValueFactors; i += kLatentOneValueThreads * 4u) {
    copy_async4(t, codes + i, from + i);
  }
  if (at < kHalves) {
    const u64 half = row * (kLatentOneCols / 128u) + at;
    MF_SHARED(u32) halves = MF_SHARED_AT(t, u32, kLatentOneValueStaged * 4u) + at;
    copy_async4(t, halves, MF_CAST(const u32, scales) + half);
    copy_async4(t, halves + kHalves, MF_CAST(const u32, biases) + half);
  }
  copies_commit(t);
}

/// The group's rows times the head's mixture: 16 lanes a row, each 32 columns of four rows.
MF_FN void multiply_one(MF_T t, MF_GLOBAL(f32) out) {
  enum : u32 { kOwn = 4u, kGroups = kLatentOneCols / 64u, kRowWords = kLatentOneCols / 8u };
  static_assert(
      static_cast<u32>(kOwn) * kLatentOneRowsAtOnce == static_cast<u32>(kLatentOneValueRows), "");
  const u32 pack = t.index % kLatentOneLanes;
  const u32 row = t.index / kLatentOneLanes;
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, kLatentOneValueStaged * 4u);
  MF_SHARED(u32) codes = MF_SHARED_AT(t, u32, 0u) + (row * kRowWords + pack * 4u);
  f32 dots[kOwn] = {0.0f, 0.0f, 0.0f, 0.0f};
  f32 sum = 0.0f;
  MF_ROLLED
  for (u32 half = 0u; half < 2u; ++half) {
    W2 words[kOwn];
    MF_UNROLL
    for (u32 i = 0u; i < kOwn; ++i) {
      words[i] = load2(codes + (i * kLatentOneRowsAtOnce * kRowWords + half * 2u));
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
  factors = MF_SHARED_AT(t, f32, kLatentOneValueFactors * 4u) + (row * kGroups + pack / 2u) * 2u;
  MF_UNROLL
  for (u32 i = 0u; i < kOwn; ++i) {
    const f32 scale = factors[i * kLatentOneRowsAtOnce * kGroups * 2u];
    const f32 bias = factors[i * kLatentOneRowsAtOnce * kGroups * 2u + 1u];
    f32 all = mf_fma(bias, sum, mf_fma(scale, dots[i], 0.0f));
    MF_UNROLL
    for (u32 mask = kLatentOneLanes / 2u; mask > 0u; mask /= 2u) {
      all += simd_shuffle_xor(t, all, mask);
    }
    if (pack == 0u) out[row + i * kLatentOneRowsAtOnce] = all;
  }
}

/// Group x: rows; y: a token; z: a head.
MF_FITS(256, 4)
MF_KERNEL(latent_values_few_w4, LatentValuesParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_READ(3, f32, mixed), MF_READ(4, f32, partials),
          MF_WRITE(5, f32, out)) {
  MF_THREAD_EARLY;
  const u32 token = t.group.y;
  const u32 head = t.group.z;
  copy_rows_of_head(t, p.up, data, scales, biases, head);
  make_factors(t, p.up.weight.scales, kLatentOneValueStaged, kLatentOneValueFactors,
               kLatentOneValueRows * (kLatentOneCols / 64u));
  await_inputs(t);
  stage_mixture(t, p.attention, mixed, partials, token, head,
                MF_SHARED_AT(t, f32, kLatentOneValueStaged * 4u));
  barrier(t);
  multiply_one(t, out + (token * p.out.token_stride + head * p.out.head_stride +
                         t.group.x * static_cast<u32>(kLatentOneValueRows)));
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
