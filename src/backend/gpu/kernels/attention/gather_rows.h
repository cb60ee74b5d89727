// Keys and values that a token has chosen, brought together in the order of its list, as they are
// stored.
#pragma once

#include "backend/gpu/kernels/attention/select_params.h"
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

/// A SIMD group a key. Group y: a kv head; z: 0 keys, 1 values. `keys` and `values` are [keys,
/// kv_heads, row].
MF_KERNEL(gather_rows, GatherParams, MF_READ(0, i32, ids), MF_READ(1, u64, k_pages),
          MF_READ(2, u64, v_pages), MF_WRITE(3, u16, keys), MF_WRITE(4, u16, values)) {
  MF_THREAD;
  const u32 i = t.group.x * t.simds + t.simd;
  if (i >= p.keys) return;
  const u32 head = t.group.y;
  const u32 group = head / p.group_kv_heads;
  const u32 position = static_cast<u32>(ids[group * p.most + i / p.unit]) * p.unit + i % p.unit;
  const u32 page = position / p.page_tokens % p.num_pages;
  const u64 within = position % p.page_tokens;
  const u64 place = static_cast<u64>(i) * p.kv_heads + head;
  if (t.group.z == 0u) {
    MF_GLOBAL(const u16)
    from = MF_AT(t, const u16, k_pages[page]) +
           (within * p.k_token_bytes + head * p.k_head_bytes) / 2u;
    copy_stored_row(t, from, keys + place * p.k_row_bytes / 2u, p.k_row_bytes, p.wide);
  } else {
    MF_GLOBAL(const u16)
    from = MF_AT(t, const u16, v_pages[page]) +
           (within * p.v_token_bytes + head * p.v_head_bytes) / 2u;
    copy_stored_row(t, from, values + place * p.v_row_bytes / 2u, p.v_row_bytes, p.wide);
  }
}

/// A SIMD group a key: those of pools that `ids` lists, or of the first pools, whose pages have a
/// row a key, then those of tokens.
MF_KERNEL(gather_pooled, GatherPooledParams, MF_READ(0, i32, ids), MF_READ(1, u64, pool_pages),
          MF_READ(2, u64, pages), MF_WRITE(3, u16, keys)) {
  MF_THREAD;
  const u32 i = t.group.x * t.simds + t.simd;
  if (i >= p.keys) return;
  MF_GLOBAL(u16) to = keys + static_cast<u64>(i) * p.row_bytes / 2u;
  if (i < p.pools) {
    const u32 pool = p.has_ids != 0u ? static_cast<u32>(ids[i]) : i;
    MF_GLOBAL(const u16)
    from = MF_AT(t, const u16, pool_pages[pool / p.page_pools]) +
           static_cast<u64>(pool % p.page_pools) * p.row_bytes / 2u;
    copy_stored_row(t, from, to, p.row_bytes, p.wide);
    return;
  }
  const u32 position = p.begin + (i - p.pools);
  MF_GLOBAL(const u16)
  from = MF_AT(t, const u16, pages[position / p.page_tokens % p.num_pages]) +
         position % p.page_tokens * p.token_bytes / 2u;
  copy_stored_row(t, from, to, p.row_bytes, p.wide);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
