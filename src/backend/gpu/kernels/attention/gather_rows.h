// Keys and values that tokens have chosen, brought together in the order of their lists, as they
// are stored: those of each token in a room of its own.
#pragma once

#include "backend/gpu/kernels/attention/select_params.h"
#include "backend/gpu/kernels/attention/softmax.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A row by a SIMD group.
MF_FN void copy_stored_row(MF_T t, MF_GLOBAL(const u16) from, MF_GLOBAL(u16) to, u32 bytes,
                           u32 wide) {
  if (wide != 0u) {
    for (u32 i = t.lane * 8u; i < bytes / 2u; i += 256u) {
      store4(MF_CAST(u32, to + i), load4(MF_CAST(const u32, from + i)));
    }
    return;
  }
  for (u32 i = t.lane; i < bytes / 2u; i += 32u) to[i] = from[i];
}

/// A SIMD group a key. Group y: a kv head's keys, behind all of these its values; z: a token.
/// `keys` and `values` are [tokens, row_keys, kv_heads, row]. A token that sees no more than it may
/// choose has all keys in their order.
MF_KERNEL(gather_rows, GatherParams, MF_READ(0, i32, ids), MF_READ(1, u64, k_pages),
          MF_READ(2, u64, v_pages), MF_WRITE(3, u16, keys), MF_WRITE(4, u16, values)) {
  MF_THREAD;
  const u32 i = t.group.x * t.simds + t.simd;
  const u32 token = t.group.z;
  const TokenSequence sequence = sequence_of(t, p, k_pages, v_pages, token);
  const u32 own = position_in(sequence, token);
  const u32 head = t.group.y % p.kv_heads;
  u32 count = own + 1u;
  u32 position = i;
  if (own >= p.dense_end) {
    count = (p.most - 1u) * p.unit + (p.whole != 0u ? (own + 1u) % p.unit : own % p.unit + 1u);
    if (i >= count) return;
    const u64 row = static_cast<u64>(token) * (p.kv_heads / p.group_kv_heads);
    const u64 at = (row + head / p.group_kv_heads) * p.most + i / p.unit;
    position = static_cast<u32>(ids[at]) * p.unit + i % p.unit;
  }
  if (i >= count) return;
  const u32 page = position / p.page_tokens % sequence.num_pages;
  const u64 within = position % p.page_tokens;
  const u64 place = (static_cast<u64>(token) * p.row_keys + i) * p.kv_heads + head;
  if (t.group.y < p.kv_heads) {
    MF_GLOBAL(const u16)
    from = MF_AT(t, const u16, sequence.k_pages[page]) +
           (within * p.k_token_bytes + head * p.k_head_bytes) / 2u;
    copy_stored_row(t, from, keys + place * p.k_row_bytes / 2u, p.k_row_bytes, p.wide);
  } else {
    MF_GLOBAL(const u16)
    from = MF_AT(t, const u16, sequence.v_pages[page]) +
           (within * p.v_token_bytes + head * p.v_head_bytes) / 2u;
    copy_stored_row(t, from, values + place * p.v_row_bytes / 2u, p.v_row_bytes, p.wide);
  }
}

/// A SIMD group a key: those of pools that `ids` lists, or of the first pools, whose pages have a
/// row a key, then those of tokens. Group z: a token. `keys` is [tokens, row_keys, row].
MF_KERNEL(gather_pooled, GatherPooledParams, MF_READ(0, i32, ids), MF_READ(1, u64, pool_pages),
          MF_READ(2, u64, pages), MF_WRITE(3, u16, keys)) {
  MF_THREAD;
  const u32 i = t.group.x * t.simds + t.simd;
  const u32 token = t.group.z;
  const TokenSequence sequence = sequence_of(t, p, pages, pages, token);
  const u32 own = position_in(sequence, token);
  const u32 first = p.window != 0u && own + 1u > p.window ? own + 1u - p.window : 0u;
  const u32 seen = (own + 1u) / p.unit;
  const bool chooses = p.most != 0u && seen > p.most;
  const u32 pools = chooses ? p.most : seen;
  if (i >= pools + (own + 1u - first)) return;
  MF_GLOBAL(u16) to = keys + (static_cast<u64>(token) * p.row_keys + i) * p.row_bytes / 2u;
  if (i < pools) {
    MF_GLOBAL(const u64) rows = sequence_of(t, p, pool_pages, pool_pages, token).k_pages;
    u32 pool = i;
    if (chooses) pool = static_cast<u32>(ids[static_cast<u64>(token) * p.most + i]);
    MF_GLOBAL(const u16)
    from = MF_AT(t, const u16, rows[pool / p.page_pools]) +
           static_cast<u64>(pool % p.page_pools) * p.row_bytes / 2u;
    copy_stored_row(t, from, to, p.row_bytes, p.wide);
    return;
  }
  const u32 position = first + (i - pools);
  MF_GLOBAL(const u16)
  from = MF_AT(t, const u16, sequence.k_pages[position / p.page_tokens % sequence.num_pages]) +
         position % p.page_tokens * p.token_bytes / 2u;
  copy_stored_row(t, from, to, p.row_bytes, p.wide);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
