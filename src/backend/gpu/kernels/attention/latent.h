// Latent attention of few tokens: a launch takes queries to the latents and writes new keys to
// pages. One behind attention itself merges splits and takes mixed latents to the heads' values.
#pragma once

#include "backend/gpu/kernels/attention/attention_heads.h"
#include "backend/gpu/kernels/attention/cached.h"
#include "backend/gpu/kernels/attention/latent_params.h"
#include "backend/gpu/kernels/attention/mma_attention_wide.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/rope.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/matmul/matrix_tile.h"
#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/norm/sums.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Scale and bias of a group of codes, in halves of a word.
MF_FN u32 load_scale_pair(MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases, u64 group) {
  return static_cast<u32>(MF_CAST(const u16, scales)[group]) |
         static_cast<u32>(MF_CAST(const u16, biases)[group]) << 16u;
}
MF_FN f32 half_of_pair(u32 pair, u32 half, u32 format) {
  const u16 bits = static_cast<u16>(pair >> (16u * half));
  const f32 as_f16 = f16_to_float(bits);
  const f32 as_bf16 = bf16_to_float(bits);
  return format == kFormatBf16 ? as_bf16 : as_f16;
}
/// The code of BITS bits of a word from bit `at` on. Exact, and cheaper than a conversion: the code
/// where it lies, as the last bits before the point of a power of two, less that power.
template <u32 BITS>
MF_FN f32 code_float(u32 word, u32 at) {
  const u32 half = at + BITS > 23u ? word >> 16u : word;
  const u32 shift = at + BITS > 23u ? at - 16u : at;
  const u32 power = (150u - shift) << 23u;
  return as_float((half & (((1u << BITS) - 1u) << shift)) | power) - as_float(power);
}

/// Eight columns of a part of a head's rows, of which there are whole parts.
template <u32 BITS>
struct HeadColumns {
  enum : u32 { kWords = BITS / 4u };
  u32 codes[static_cast<u32>(kHeadPartRows) * kWords];
  u32 scales[kHeadPartRows];

  MF_FN_MEMBER void load(MF_PARAMS(HeadMatrix) m, MF_GLOBAL(const u8) data,
                         MF_GLOBAL(const u8) scale_data, MF_GLOBAL(const u8) biases, u32 head,
                         u32 first, u32 col) {
    // A branch: compilers do not move these loads past it, to where inputs have been awaited.
    if (first >= m.rows_per_head) return;
    const u64 row = head * m.head_stride + m.row_begin + first;
    const u32 words = m.weight.cols / 32u * BITS;
    const u32 groups = m.weight.cols >> m.weight.group_shift;
    MF_GLOBAL(const u32) from = MF_CAST(const u32, data) + (row * words + col / 8u * kWords);
    const u64 group = row * groups + (col >> m.weight.group_shift);
    MF_GLOBAL(const u16) own_scales = MF_CAST(const u16, scale_data) + group;
    MF_GLOBAL(const u16) own_biases = MF_CAST(const u16, biases) + group;
    MF_UNROLL
    for (u32 i = 0u; i < kHeadPartRows; ++i) {
      if (BITS == 4u) {
        codes[i * kWords] = from[0];
      } else {
        const W2 two = load2(from);
        codes[i * kWords] = two.v[0];
        codes[i * kWords + kWords - 1u] = two.v[1];
      }
      scales[i] = static_cast<u32>(own_scales[0]) | static_cast<u32>(own_biases[0]) << 16u;
      from = from + words;
      own_scales = own_scales + groups;
      own_biases = own_biases + groups;
    }
  }

  /// Eight sums over the part's rows in order. A scale times a code is exact, which is why adding
  /// the bias in the same step changes nothing.
  MF_FN_MEMBER void multiply(MF_PARAMS(HeadMatrix) m, MF_GLOBAL(const f32) x, u32 first,
                             MF_LOCAL(f32) sums) const {
    MF_UNROLL
    for (u32 k = 0u; k < 8u; ++k) sums[k] = 0.0f;
    if (first >= m.rows_per_head) return;
    MF_UNROLL
    for (u32 i = 0u; i < kHeadPartRows; ++i) {
      const f32 factor = x[first + i];
      const f32 scale = half_of_pair(scales[i], 0u, m.weight.scales);
      const f32 bias = half_of_pair(scales[i], 1u, m.weight.scales);
      MF_UNROLL
      for (u32 k = 0u; k < 8u; ++k) {
        const u32 word = codes[i * kWords + k * BITS / 32u];
        const f32 code = code_float<BITS>(word, k * BITS % 32u);
        sums[k] = mf_fma(factor, mf_fma(scale, code, bias), sums[k]);
      }
    }
  }
};

/// Columns of one head's query over the latents. Shared: a row of columns for each part.
template <u32 BITS>
MF_FN void latent_query(MF_T t, MF_PARAMS(LatentQueriesParams) p, MF_GLOBAL(const u8) data,
                        MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                        MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out, u32 head) {
  MF_SHARED(f32) parts = MF_SHARED_AT(t, f32, 0u);
  enum : u32 { kOctets = kLatentColumns / 8u, kParts = kLatentThreads / kOctets };
  const u32 own = t.index % kOctets * 8u;
  const u32 part = t.index / kOctets;
  const u32 col = t.group.x * kLatentColumns + own;
  const u32 last = p.up.weight.cols - 8u;
  HeadColumns<BITS> columns;
  columns.load(p.up, data, scales, biases, head, part * kHeadPartRows, col < last ? col : last);
  await_inputs(t);
  f32 total = 0.0f;
  for (u32 begin = 0u; begin < p.up.rows_per_head;
       begin += kParts * static_cast<u32>(kHeadPartRows)) {
    const u32 first = begin + part * kHeadPartRows;
    if (begin > 0u) {
      barrier(t);
      columns.load(p.up, data, scales, biases, head, first, col < last ? col : last);
    }
    f32 sums[8];
    columns.multiply(p.up, x, first, sums);
    MF_UNROLL
    for (u32 k = 0u; k < 8u; k += 4u) {
      const F4 four = {{sums[k], sums[k + 1u], sums[k + 2u], sums[k + 3u]}};
      store4(parts + (part * kLatentColumns + own + k), four);
    }
    barrier(t);
    if (t.index >= kLatentColumns) continue;
    MF_UNROLL
    for (u32 i = 0u; i < kParts; ++i) {
      if (begin + i * kHeadPartRows < p.up.rows_per_head) {
        total = total + parts[i * kLatentColumns + t.index];
      }
    }
  }
  const u32 column = t.group.x * kLatentColumns + t.index;
  if (t.index < kLatentColumns && column < p.up.weight.cols) out[column] = total;
}

/// Where the elements of a pair are.
struct PairPlaces {
  u32 first;
  u32 second;
};
MF_FN PairPlaces pair_places(MF_PARAMS(LatentQueriesParams) p, u32 pair) {
  PairPlaces at;
  at.first = p.interleaved != 0u ? 2u * pair : pair;
  at.second = at.first + (p.interleaved != 0u ? 1u : p.half);
  return at;
}

/// The turned parts of queries, of every step-th head from `head` on, by a SIMD group, for which
/// `turn` is that of its lanes' first pairs.
MF_FN void turn_heads(MF_T t, MF_PARAMS(LatentQueriesParams) p, u32 token, u32 head, u32 step,
                      Turn turn, i32 position, MF_GLOBAL(const f32) frequencies,
                      MF_GLOBAL(const f32) q, MF_GLOBAL(f32) query) {
  for (u32 pair = t.lane; pair < p.half; pair += 32u) {
    if (pair >= 32u) turn = turn_of(position, frequencies[pair], p.factor);
    const PairPlaces at = pair_places(p, pair);
    for (u32 begin = head; begin < p.heads; begin += step * kLatentTurnsHeld) {
      f32 first[kLatentTurnsHeld];
      f32 second[kLatentTurnsHeld];
      MF_UNROLL
      for (u32 i = 0u; i < kLatentTurnsHeld; ++i) {
        const u32 own = begin + i * step < p.heads ? begin + i * step : begin;
        MF_GLOBAL(const f32)
        from = q + (token * p.q.token_stride + own * p.q.head_stride + p.nope);
        first[i] = from[at.first];
        second[i] = from[at.second];
      }
      MF_UNROLL
      for (u32 i = 0u; i < kLatentTurnsHeld; ++i) {
        const u32 own = begin + i * step;
        if (own >= p.heads) continue;
        const Rotated both = rotated(first[i], second[i], turn);
        MF_GLOBAL(f32)
        to = query + (token * p.query.token_stride + own * p.query.head_stride + p.rank);
        to[at.first] = both.first;
        to[at.second] = both.second;
      }
    }
  }
}

/// The latent's norm by a SIMD group, in place and into its page. Weights are on their way before
/// the inputs.
MF_FN void norm_latent(MF_T t, MF_PARAMS(LatentQueriesParams) p, MF_GLOBAL(f32) row,
                       MF_GLOBAL(u16) page, MF_GLOBAL(const f32) weight) {
  enum : u32 { kHeld = kLatentRankMax / 128u };
  F4 weights[kHeld];
  F4 held[kHeld];
  if (p.rank > 0u) {  // a branch, past which compilers do not move the loads
    MF_UNROLL
    for (u32 i = 0u; i < kHeld; ++i) {
      const u32 c = t.lane * 4u + i * 128u;
      if (c < p.rank) weights[i] = load_columns(weight, c, p.rank, p.wide_latent);
    }
  }
  await_inputs(t);
  MF_UNROLL
  for (u32 i = 0u; i < kHeld; ++i) {
    const u32 c = t.lane * 4u + i * 128u;
    if (c < p.rank) held[i] = load_columns(MF_CAST(const f32, row), c, p.rank, p.wide_latent);
  }
  f32 squares = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < kHeld; ++i) {
    if (t.lane * 4u + i * 128u < p.rank) squares = add_squares(squares, held[i]);
  }
  const f32 factor = norm_factor(simd_sum(t, squares), p.rank, p.epsilon);
  MF_UNROLL
  for (u32 i = 0u; i < kHeld; ++i) {
    const u32 c = t.lane * 4u + i * 128u;
    if (c >= p.rank) continue;
    const F4 four = times(times(held[i], factor), weights[i]);
    store_columns(row, c, p.rank, p.wide_latent, four);
    store_cached_columns(page, c, p.rank, p.wide_latent, p.f16, four);
  }
}

/// The work of a token besides its heads' products, shared by the SIMD groups of p.groups groups,
/// of which this is number `group`: the norm of the new key, in place and into its page, and all
/// rotary positions.
MF_FN void place_latent(MF_T t, MF_PARAMS(LatentQueriesParams) p, u32 group, MF_GLOBAL(f32) latent,
                        MF_GLOBAL(const f32) weight, MF_GLOBAL(const i32) positions,
                        MF_GLOBAL(const f32) frequencies, MF_GLOBAL(const u64) pages,
                        MF_GLOBAL(const f32) q, MF_GLOBAL(f32) query) {
  const u32 token = t.group.y;
  const u32 own = group * t.simds + t.simd;
  const TokenSequence sequence = sequence_of(t, p, pages, pages, token);
  const u32 place = sequence.position + (token - sequence.token);
  MF_GLOBAL(f32) row = latent + token * p.latent_stride;
  MF_GLOBAL(u16)
  page = cached_place(t, sequence.k_pages[place / p.page_tokens % sequence.num_pages],
                      place % p.page_tokens * p.page_stride, p.f16);
  if (own == 0u) return norm_latent(t, p, row, page, weight);
  if (p.early == 0u) await_inputs(t);
  const i32 position = positions[token];
  const f32 frequency = p.half > 0u ? frequencies[t.lane < p.half ? t.lane : 0u] : 0.0f;
  const Turn turn = turn_of(position, frequency, p.factor);
  if (p.early != 0u) await_inputs(t);
  if (own > 1u) {
    const u32 step = p.groups * t.simds - 2u;
    return turn_heads(t, p, token, own - 2u, step, turn, position, frequencies, q, query);
  }
  for (u32 pair = t.lane; pair < p.half; pair += 32u) {
    const PairPlaces at = pair_places(p, pair);
    const Turn its = pair < 32u ? turn : turn_of(position, frequencies[pair], p.factor);
    const Rotated both = rotated(row[p.rank + at.first], row[p.rank + at.second], its);
    row[p.rank + at.first] = both.first;
    row[p.rank + at.second] = both.second;
    store_cached(page, p.rank + at.first, p.f16, both.first);
    store_cached(page, p.rank + at.second, p.f16, both.second);
  }
}

/// A pack of 32 columns of each of a few rows: up to half a SIMD group has the packs of a row.
template <u32 BITS>
struct HeadPacks {
  u32 words[kLatentRowsHeld][BITS];
  u32 scales[kLatentRowsHeld];
  u32 first;  // row; the others are at_once further each
  u32 at_once;
  u32 pack;
  bool has_any;

  MF_FN_MEMBER void load(MF_T t, MF_PARAMS(HeadMatrix) m, MF_GLOBAL(const u8) data,
                         MF_GLOBAL(const u8) scale_data, MF_GLOBAL(const u8) biases, u32 head) {
    at_once = static_cast<u32>(kLatentThreads) >> m.lane_shift;
    first = t.group.x * at_once * kLatentRowsHeld + (t.index >> m.lane_shift);
    pack = t.index & ((1u << m.lane_shift) - 1u);
    has_any = pack < m.weight.cols / 32u && first < m.rows_per_head;
    if (!has_any) return;
    const u32 begin = head * m.head_stride + m.row_begin;
    MF_UNROLL
    for (u32 i = 0u; i < kLatentRowsHeld; ++i) {
      const u32 r = first + i * at_once;
      const u64 row = begin + (r < m.rows_per_head ? r : m.rows_per_head - 1u);
      load_pack<BITS>(words[i],
                      MF_CAST(const u32, data) + (row * (m.weight.cols / 32u) + pack) * BITS, 1u);
      const u64 group = row * (m.weight.cols >> m.weight.group_shift);
      scales[i] = load_scale_pair(scale_data, biases, group + (pack * 32u >> m.weight.group_shift));
    }
  }

  /// The sums of one row each, as accumulate_affine() has them.
  MF_FN_MEMBER void multiply(u32 format, MF_SHARED(f32) staged, MF_LOCAL(f32) sums) const {
    f32 dots[kLatentRowsHeld];
    f32 sum = 0.0f;
    MF_UNROLL
    for (u32 i = 0u; i < kLatentRowsHeld; ++i) {
      dots[i] = 0.0f;
      sums[i] = 0.0f;
    }
    if (!has_any) return;
    MF_UNROLL
    for (u32 q = 0u; q < 8u; ++q) {
      const F4 x = load4(staged + staged_at(pack * 32u + q * 4u));
      MF_UNROLL
      for (u32 k = 0u; k < 4u; ++k) {
        sum += x.v[k];
        MF_UNROLL
        for (u32 i = 0u; i < kLatentRowsHeld; ++i) {
          const u32 bit = (q * 4u + k) * BITS;
          const f32 code = code_float<BITS>(words[i][bit / 32u], bit % 32u);
          dots[i] = mf_fma(code, x.v[k], dots[i]);
        }
      }
    }
    MF_UNROLL
    for (u32 i = 0u; i < kLatentRowsHeld; ++i) {
      sums[i] = mf_fma(half_of_pair(scales[i], 1u, format), sum,
                       mf_fma(half_of_pair(scales[i], 0u, format), dots[i], 0.0f));
    }
  }

  /// Multiplies the staged activations and stores the rows of a head.
  MF_FN_MEMBER void finish(MF_T t, MF_PARAMS(HeadMatrix) m, MF_SHARED(f32) staged,
                           MF_GLOBAL(f32) out) const {
    f32 sums[kLatentRowsHeld];
    multiply(m.weight.scales, staged, sums);
    MF_UNROLL
    for (u32 i = 0u; i < kLatentRowsHeld; ++i) {
      f32 sum = sums[i];
      // As simd_sum() adds them where further lanes have nothing.
      MF_UNROLL
      for (u32 mask = 8u; mask > 0u; mask /= 2u) {
        const f32 other = simd_shuffle_xor(t, sum, mask);
        if ((mask >> m.lane_shift) == 0u) sum += other;
      }
      const u32 row = first + i * at_once;
      if (pack == 0u && row < m.rows_per_head) out[row] = sum;
    }
  }
};

/// The same from a matrix whose rows are the latent's. Shared: the head's part of q.
template <u32 BITS>
MF_FN void latent_query_rows(MF_T t, MF_PARAMS(LatentQueriesParams) p, MF_GLOBAL(const u8) data,
                             MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases,
                             MF_GLOBAL(const f32) x, MF_GLOBAL(f32) out, u32 head) {
  MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, 0u);
  HeadPacks<BITS> held;
  held.load(t, p.up, data, scales, biases, head);
  await_inputs(t);
  for (u32 d = t.index; d < p.nope; d += t.threads) staged[staged_at(d)] = x[d];
  barrier(t);
  held.finish(t, p.up, staged, out);
}

// Group x: columns; y: a token; z: a head, or behind the heads the token's other work.
#define MF_LATENT_QUERIES(name, BITS, fits, QUERY)                                                 \
  MF_FITS(256, fits)                                                                               \
  MF_KERNEL(name, LatentQueriesParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),             \
            MF_CONST(2, u8, biases), MF_READ(3, f32, q), MF_CONST(4, f32, norm),                   \
            MF_READ(5, i32, positions), MF_CONST(6, f32, frequencies), MF_CONST(7, u64, pages),    \
            MF_WRITE(8, f32, latent), MF_WRITE(9, f32, query)) {                                   \
    MF_THREAD_EARLY;                                                                               \
    const u32 token = t.group.y;                                                                   \
    const u32 head = t.group.z;                                                                    \
    if (head == p.heads) {                                                                         \
      return place_latent(t, p, t.group.x, latent, norm, positions, frequencies, pages, q, query); \
    }                                                                                              \
    MF_GLOBAL(const f32) from = q + (token * p.q.token_stride + head * p.q.head_stride);           \
    MF_GLOBAL(f32) to = query + (token * p.query.token_stride + head * p.query.head_stride);       \
    QUERY<BITS##u>(t, p, data, scales, biases, from, to, head);                                    \
  }
MF_LATENT_QUERIES(latent_queries_w4, 4, 4, latent_query)
MF_LATENT_QUERIES(latent_queries_w8, 8, 4, latent_query)
MF_LATENT_QUERIES(latent_queries_rows_w4, 4, 3, latent_query_rows)
MF_LATENT_QUERIES(latent_queries_rows_w8, 8, 3, latent_query_rows)
#undef MF_LATENT_QUERIES

/// The parts of a query that are under way together: a split's tiles, if they are parts.
enum : u32 { kPartialsAtOnce = kWideSplit / kWideKeys };

/// Factors that merge a batch of parts, one part a lane: the factor of the sum before, the factor
/// of the part, and the part's total times the latter.
struct BatchWays {
  f32 keep;
  f32 add;
  f32 total;
  f32 largest;  // up to this lane's part
  u32 seen;     // a bit a part: a query does not see every one, and may have no columns of those
};

MF_FN BatchWays find_batch_ways(MF_T t, MF_GLOBAL(const u32) sums, u32 count, f32 largest) {
  const u32 part = t.lane % kPartialsAtOnce;
  const W2 own = load2(sums + (part < count ? part : count - 1u) * 2u);
  const f32 total = as_float(own.v[1]);
  const bool is_seen = part < count && total != 0.0f;
  const f32 its = is_seen ? as_float(own.v[0]) : -mf_infinity();
  BatchWays ways;
  ways.seen = simd_ballot(t, is_seen);
  ways.largest = mf_max(its, largest);
  MF_UNROLL
  for (u32 step = 1u; step < kPartialsAtOnce; step *= 2u) {
    const f32 other = simd_shuffle(t, ways.largest, part >= step ? t.lane - step : t.lane);
    ways.largest = mf_max(ways.largest, other);
  }
  const f32 before = simd_shuffle(t, ways.largest, part > 0u ? t.lane - 1u : t.lane);
  const f32 measure = measure_of(ways.largest);
  ways.keep = mf_exp2((part > 0u ? before : largest) - measure);
  ways.add = mf_exp2(its - measure);
  ways.total = is_seen ? total * ways.add : 0.0f;
  return ways;
}

/// The parts of a query, put together.
template <u32 COLUMNS>
MF_FN SoftmaxSum<COLUMNS> merged_parts(MF_T t, MF_PARAMS(AttentionParams) p,
                                       MF_GLOBAL(const f32) partials, u32 token, u32 head) {
  SoftmaxSum<COLUMNS> all = empty_sum<COLUMNS>();
  SoftmaxSum<COLUMNS> split = empty_sum<COLUMNS>();
  const u64 index = partial_index(p, token, head, 0u);
  MF_GLOBAL(const f32) columns = partials + (partial_columns(p, index) + t.index);
  MF_GLOBAL(const u32) sums = MF_CAST(const u32, partials) + partial_sums(p, index);
  MF_ROLLED
  for (u32 first = 0u; first < p.num_parts; first += kPartialsAtOnce) {
    const u32 count = p.num_parts - first;
    f32 held[kPartialsAtOnce * COLUMNS];
    MF_UNROLL
    for (u32 k = 0u; k < kPartialsAtOnce; ++k) {
      MF_UNROLL
      for (u32 i = 0u; i < COLUMNS; ++i) {
        held[k * COLUMNS + i] = 0.0f;
        if (k < count && t.index + i * t.threads < p.v_head_dim) {
          held[k * COLUMNS + i] = columns[(first + k) * p.partial_words + i * t.threads];
        }
      }
    }
    const BatchWays ways = find_batch_ways(t, sums + first * 2u, count, split.largest);
    MF_UNROLL
    for (u32 k = 0u; k < kPartialsAtOnce; ++k) {
      const f32 keep = simd_shuffle(t, ways.keep, k);
      const f32 add = simd_shuffle(t, ways.add, k);
      split.total = mf_fma(split.total, keep, simd_shuffle(t, ways.total, k));
      MF_UNROLL
      for (u32 i = 0u; i < COLUMNS; ++i) {
        const f32 own = (ways.seen >> k & 1u) != 0u ? held[k * COLUMNS + i] * add : 0.0f;
        split.columns[i] = mf_fma(split.columns[i], keep, own);
      }
    }
    split.largest = simd_shuffle(t, ways.largest, kPartialsAtOnce - 1u);
    if (p.split_parts == 0u) continue;
    MF_UNROLL
    for (u32 i = 0u; i < COLUMNS; ++i) split.columns[i] = split.columns[i] * wide_factor();
    all = merged(all, split);
    split = empty_sum<COLUMNS>();
  }
  return p.split_parts == 0u ? split : all;
}

/// One head's mixture of latents, from its parts or as a whole, to shared memory, where packs
/// expect it.
MF_FN void stage_mixture(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) mixed,
                         MF_GLOBAL(const f32) partials, u32 token, u32 head,
                         MF_SHARED(f32) staged) {
  if (p.walks != 0u) {
    MF_GLOBAL(const f32) row = mixed + (token * p.out.token_stride + head * p.out.head_stride);
    for (u32 d = t.index; d < p.v_head_dim; d += t.threads) staged[staged_at(d)] = row[d];
    return;
  }
  const SoftmaxSum<kLatentColumnsHeld> all =
      merged_parts<kLatentColumnsHeld>(t, p, partials, token, head);
  const PartSum sum = {all.largest, all.total};
  const f32 factor = finish_factor(p, sum, partials, head);
  MF_UNROLL
  for (u32 i = 0u; i < kLatentColumnsHeld; ++i) {
    const u32 d = t.index + i * t.threads;
    if (d < p.v_head_dim) staged[staged_at(d)] = mf_fma(all.columns[i], factor, 0.0f);
  }
}

// Group x: rows; y: a token; z: a head. Shared: the mixture. With registers for
// three groups a multiprocessor instead of two it takes twice as long.
#define MF_LATENT_VALUES(BITS)                                                                   \
  MF_FITS(256, 2)                                                                                \
  MF_KERNEL(latent_values_w##BITS, LatentValuesParams, MF_CONST(0, u8, data),                    \
            MF_CONST(1, u8, scales), MF_CONST(2, u8, biases), MF_READ(3, f32, mixed),            \
            MF_READ(4, f32, partials), MF_WRITE(5, f32, out)) {                                  \
    MF_THREAD_EARLY;                                                                             \
    MF_SHARED(f32) staged = MF_SHARED_AT(t, f32, 0u);                                            \
    const u32 token = t.group.y;                                                                 \
    const u32 head = t.group.z;                                                                  \
    HeadPacks<BITS##u> held;                                                                     \
    held.load(t, p.up, data, scales, biases, head);                                              \
    await_inputs(t);                                                                             \
    stage_mixture(t, p.attention, mixed, partials, token, head, staged);                         \
    barrier(t);                                                                                  \
    held.finish(t, p.up, staged, out + (token * p.out.token_stride + head * p.out.head_stride)); \
  }
MF_LATENT_VALUES(4)
MF_LATENT_VALUES(8)
#undef MF_LATENT_VALUES

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
