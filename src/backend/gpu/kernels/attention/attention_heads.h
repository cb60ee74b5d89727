// Causal attention over paged keys and values, softmax online: a group is one query of one head.
//
// Keys are taken in tiles of 128 and tiles in splits of 512, both at absolute positions; splits are
// finished one by one and merged in order. One group may walk all splits of its query, or each
// split may have a group of its own and attention_merge puts them together: the same sums either
// way.
#pragma once

#include "backend/gpu/kernels/attention/cached.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// The row of one position in its page.
template <typename Stored>
MF_FN MF_GLOBAL(const Stored)
    cached_row(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const u64) pages, u32 num_pages,
               HeadsLayout layout, u32 position, u32 kv_head) {
  const u64 address = pages[position / p.page_tokens % num_pages];
  return MF_AT(t, const Stored, address) +
         (position % p.page_tokens * layout.token_stride + kv_head * layout.head_stride);
}

/// A softmax under way: of one split, or of all splits so far. A thread holds every 128th column,
/// or 256th in larger groups.
template <u32 COLUMNS>
struct SoftmaxSum {
  f32 largest;
  f32 total;
  f32 columns[COLUMNS];
};
typedef SoftmaxSum<kAttentionColumnsMax> HeadSum;

template <u32 COLUMNS>
MF_FN SoftmaxSum<COLUMNS> empty_sum() {
  SoftmaxSum<COLUMNS> sum;
  sum.largest = -mf_infinity();
  sum.total = 0.0f;
  MF_UNROLL
  for (u32 i = 0u; i < COLUMNS; ++i) sum.columns[i] = 0.0f;
  return sum;
}

/// Adds `other`.
template <u32 COLUMNS>
MF_FN SoftmaxSum<COLUMNS> merged(SoftmaxSum<COLUMNS> sum, SoftmaxSum<COLUMNS> other) {
  const PartSum all = {sum.largest, sum.total};
  const PartSum part = {other.largest, other.total};
  const PartMerge merge = merge_parts(all, part);
  sum.largest = merge.all.largest;
  sum.total = merge.all.total;
  MF_UNROLL
  for (u32 i = 0u; i < COLUMNS; ++i) {
    sum.columns[i] = mf_fma(sum.columns[i], merge.keep, other.columns[i] * merge.add);
  }
  return sum;
}

/// Writes the quotients.
MF_FN void finish_sum(MF_T t, MF_PARAMS(AttentionParams) p, HeadSum sum, MF_GLOBAL(const f32) sinks,
                      MF_GLOBAL(const f32) gates, MF_GLOBAL(f32) row, u32 sink) {
  const PartSum all = {sum.largest, sum.total};
  const f32 factor = finish_factor(p, all, sinks, sink);
  MF_UNROLL
  for (u32 i = 0u; i < kAttentionColumnsMax; ++i) {
    const u32 d = t.index + i * t.threads;
    if (d < p.v_head_dim) row[d] = finished(p, sum.columns[i], factor, gates, d);
  }
}

/// Positions whose rows are under way together: alone, each would wait for the one before.
enum : u32 { kPositionsAtOnce = 8 };

/// scores[position - tile] of positions [low, high) of a tile; a SIMD group a position. The query
/// is at `own`; `bias` is its row of biases.
template <typename Key>
MF_FN void score_keys(MF_T t, MF_PARAMS(AttentionParams) p, TokenSequence sequence, u32 kv_head,
                      MF_GLOBAL(const f32) bias, u32 own, u32 tile, u32 low, u32 high) {
  MF_GLOBAL(const u64) pages = sequence.k_pages;
  const u32 num_pages = sequence.num_pages;
  MF_SHARED(f32) query = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) scores = query + p.head_dim;
  if (p.page_tokens % kAttentionTile != 0u) {
    for (u32 position = low + t.simd; position < high; position += t.simds) {
      MF_GLOBAL(const Key)
      key = cached_row<Key>(t, p, pages, num_pages, p.k_page, position, kv_head);
      f32 dot = 0.0f;
      for (u32 d = t.lane; d < p.head_dim; d += 32u) {
        dot = mf_fma(query[d], cached_number(key, d, p.head_dim), dot);
      }
      dot = simd_sum(t, dot);
      if (t.lane == 0u) {
        scores[position - tile] = dot * p.scale + bias_of(p, bias, own - position);
      }
    }
    return;
  }
  // The tile lies in one page. Past the end, the last position is summed again and not stored.
  MF_GLOBAL(const Key) keys = cached_row<Key>(t, p, pages, num_pages, p.k_page, tile, kv_head);
  for (u32 first = low + t.simd; first < high; first += t.simds * kPositionsAtOnce) {
    u64 at[kPositionsAtOnce];
    f32 dots[kPositionsAtOnce];
    MF_UNROLL
    for (u32 k = 0u; k < kPositionsAtOnce; ++k) {
      const u32 position = first + k * t.simds;
      at[k] = ((position < high ? position : high - 1u) - tile) * p.k_page.token_stride;
      dots[k] = 0.0f;
    }
    for (u32 d = t.lane; d < p.head_dim; d += 32u) {
      const f32 q = query[d];
      MF_UNROLL
      for (u32 k = 0u; k < kPositionsAtOnce; ++k) {
        dots[k] = mf_fma(q, cached_number(keys + at[k], d, p.head_dim), dots[k]);
      }
    }
    simd_sums<kPositionsAtOnce>(t, dots);
    MF_UNROLL
    for (u32 k = 0u; k < kPositionsAtOnce; ++k) {
      const u32 position = first + k * t.simds;
      if (t.lane == 0u && position < high) {
        scores[position - tile] = dots[k] * p.scale + bias_of(p, bias, own - position);
      }
    }
  }
}

/// Adds weights[position - tile] times the values of positions [low, high), in order; a thread a
/// column.
template <typename Value>
MF_FN HeadSum add_values(MF_T t, MF_PARAMS(AttentionParams) p, HeadSum sum, TokenSequence sequence,
                         u32 kv_head, u32 tile, u32 low, u32 high) {
  if (t.index >= p.v_head_dim) return sum;
  MF_GLOBAL(const u64) pages = sequence.v_pages;
  const u32 num_pages = sequence.num_pages;
  MF_SHARED(f32) weights = MF_SHARED_AT(t, f32, 0u) + (p.head_dim + kAttentionTile);
  u32 position = low;
  if (p.page_tokens % kAttentionTile == 0u) {
    MF_GLOBAL(const Value)
    values = cached_row<Value>(t, p, pages, num_pages, p.v_page, tile, kv_head);
    for (; position + kPositionsAtOnce <= high; position += kPositionsAtOnce) {
      const u64 at = (position - tile) * p.v_page.token_stride;
      MF_UNROLL
      for (u32 i = 0u; i < kAttentionColumnsMax; ++i) {
        const u32 d = t.index + i * t.threads;
        if (d >= p.v_head_dim) continue;
        f32 held[kPositionsAtOnce];
        MF_UNROLL
        for (u32 k = 0u; k < kPositionsAtOnce; ++k) {
          held[k] = cached_number(values + (at + k * p.v_page.token_stride), d, p.v_scales);
        }
        MF_UNROLL
        for (u32 k = 0u; k < kPositionsAtOnce; ++k) {
          sum.columns[i] = mf_fma(weights[position - tile + k], held[k], sum.columns[i]);
        }
      }
    }
  }
  for (; position < high; ++position) {
    MF_GLOBAL(const Value)
    value = cached_row<Value>(t, p, pages, num_pages, p.v_page, position, kv_head);
    const f32 weight = weights[position - tile];
    MF_UNROLL
    for (u32 i = 0u; i < kAttentionColumnsMax; ++i) {
      const u32 d = t.index + i * t.threads;
      if (d >= p.v_head_dim) continue;
      sum.columns[i] = mf_fma(weight, cached_number(value, d, p.v_scales), sum.columns[i]);
    }
  }
  return sum;
}

/// Adds keys [low, high) of one tile, which begins at `tile`, to the sum of its split.
template <typename Row>
MF_FN HeadSum attend_tile(MF_T t, MF_PARAMS(AttentionParams) p, HeadSum sum, TokenSequence sequence,
                          u32 kv_head, MF_GLOBAL(const f32) bias, u32 own, u32 tile, u32 low,
                          u32 high) {
  MF_SHARED(f32) query = MF_SHARED_AT(t, f32, 0u);
  MF_SHARED(f32) scores = query + p.head_dim;
  MF_SHARED(f32) weights = scores + kAttentionTile;
  score_keys<Row>(t, p, sequence, kv_head, bias, own, tile, low, high);
  barrier(t);
  f32 largest = sum.largest;
  for (u32 i = t.lane; i < kAttentionTile; i += 32u) {
    if (tile + i >= low && tile + i < high) largest = mf_max(largest, scores[i]);
  }
  largest = simd_max(t, largest);
  for (u32 i = t.index; i < kAttentionTile; i += t.threads) {
    weights[i] = tile + i >= low && tile + i < high ? mf_exp2(scores[i] - largest) : 0.0f;
  }
  barrier(t);
  f32 total = 0.0f;
  for (u32 i = t.lane; i < kAttentionTile; i += 32u) total += weights[i];
  total = simd_sum(t, total);
  const f32 keep = mf_exp2(sum.largest - largest);
  sum.largest = largest;
  sum.total = mf_fma(sum.total, keep, total);
  MF_UNROLL
  for (u32 i = 0u; i < kAttentionColumnsMax; ++i) sum.columns[i] = sum.columns[i] * keep;
  return add_values<Row>(t, p, sum, sequence, kv_head, tile, low, high);
}

/// Group x: a head; y: a query; z: a split, if there is more than one. 128 threads. Shared: the
/// query, and scores and weights of a tile.
template <typename Row>
MF_FN void attend_head(MF_T t, MF_PARAMS(AttentionParams) p, MF_GLOBAL(const f32) q,
                       MF_GLOBAL(const u64) k_pages, MF_GLOBAL(const u64) v_pages,
                       MF_GLOBAL(const f32) sinks, MF_GLOBAL(f32) out, MF_GLOBAL(f32) partials,
                       MF_GLOBAL(const f32) biases, MF_GLOBAL(const f32) gate) {
  MF_SHARED(f32) query = MF_SHARED_AT(t, f32, 0u);
  const u32 head = t.group.x;
  const u32 token = t.group.y;
  const u32 kv_head = head / p.heads_per_kv_head;
  const TokenSequence sequence = sequence_of(t, p, k_pages, v_pages, token);
  const u32 end = sequence.position + (token - sequence.token) + 1u;
  const u32 begin = first_seen(p, end);
  MF_GLOBAL(const f32) bias = biases + (static_cast<u64>(token) * p.heads + head) * p.bias_extent;
  MF_GLOBAL(const f32) q_row = q + (token * p.q.token_stride + head * p.q.head_stride);
  for (u32 d = t.index; d < p.head_dim; d += t.threads) query[d] = q_row[d];
  barrier(t);
  const bool alone = p.walks != 0u;
  const u32 seen = alone || p.lengths != 0u ? begin / kAttentionSplit : 0u;
  u32 split = seen + (alone ? 0u : p.first_part + t.group.z);
  const u32 last = alone ? (end - 1u) / kAttentionSplit : split;
  HeadSum all = empty_sum<kAttentionColumnsMax>();
  for (; split <= last; ++split) {
    const u32 from = split * kAttentionSplit;
    const u32 low = begin > from ? begin : from;
    const u32 high = end < from + kAttentionSplit ? end : from + kAttentionSplit;
    HeadSum sum = empty_sum<kAttentionColumnsMax>();
    for (u32 tile = low / kAttentionTile * kAttentionTile; tile < high; tile += kAttentionTile) {
      const u32 tile_end = tile + kAttentionTile;
      sum = attend_tile<Row>(t, p, sum, sequence, kv_head, bias, end - 1u, tile,
                             low > tile ? low : tile, high < tile_end ? high : tile_end);
    }
    all = alone ? merged(all, sum) : sum;
  }
  if (alone) {
    MF_GLOBAL(f32) row = out + (token * p.out.token_stride + head * p.out.head_stride);
    finish_sum(t, p, all, sinks, gates_of(p, gate, token, head), row, token * p.sink_stride + head);
    return;
  }
  const u64 index = partial_index(p, token, head, t.group.z);
  MF_GLOBAL(f32) partial = partials + partial_columns(p, index);
  if (t.index == 0u) {
    MF_GLOBAL(f32) sums = partials + partial_sums(p, index);
    sums[0] = all.largest;
    sums[1] = all.total;
  }
  MF_UNROLL
  for (u32 i = 0u; i < kAttentionColumnsMax; ++i) {
    const u32 d = t.index + i * t.threads;
    if (d < p.v_head_dim) partial[d] = all.columns[i];
  }
}

#define MF_ATTENTION_HEADS(name, ROW)                                                     \
  MF_KERNEL(name, AttentionParams, MF_READ(0, f32, q), MF_READ(1, u64, k_pages),          \
            MF_READ(2, u64, v_pages), MF_READ(3, f32, sinks), MF_WRITE(4, f32, out),      \
            MF_WRITE(5, f32, partials), MF_READ(6, f32, biases), MF_READ(7, f32, gate)) { \
    MF_THREAD;                                                                            \
    attend_head<ROW>(t, p, q, k_pages, v_pages, sinks, out, partials, biases, gate);      \
  }
MF_ATTENTION_HEADS(attention_heads, f32)
MF_ATTENTION_HEADS(attention_heads_f16, u16)
MF_ATTENTION_HEADS(attention_heads_q8, u8)
#undef MF_ATTENTION_HEADS

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
