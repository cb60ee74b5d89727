// Adds the parts of a query's softmax, which groups of their own have summed, in order.
#pragma once

namespace moeflux {
namespace gpu {
namespace kernels {

/// The largest of the lanes up to this one.
MF_FN f32 largest_so_far(MF_T t, f32 largest) {
  MF_UNROLL
  for (u32 step = 1u; step < 32u; step *= 2u) {
    const f32 other = simd_shuffle(t, largest, t.lane >= step ? t.lane - step : t.lane);
    largest = mf_max(largest, other);
  }
  return largest;
}

/// Group x: 16 columns; y: a head; z: a query. 256 threads. Shared: how parts are added, then their
/// columns.
MF_FITS(256, 4)
MF_KERNEL(attention_merge, AttentionParams, MF_READ(0, f32, partials), MF_READ(1, f32, sinks),
          MF_WRITE(2, f32, out)) {
  MF_THREAD;
  MF_SHARED(f32) ways = MF_SHARED_AT(t, f32, 0u);  // keep, add, total * add
  MF_SHARED(f32) simd_largest = MF_SHARED_AT(t, f32, kMergeParts * 16u);
  MF_SHARED(u32) staged = MF_SHARED_AT(t, u32, kMergeColumnsAt * 4u);
  MF_SHARED(f32) columns = MF_SHARED_AT(t, f32, kMergeColumnsAt * 4u);
  const u32 head = t.group.y;
  const u32 token = t.group.z;
  const u32 first_column = t.group.x * kMergeColumns;
  const u64 index = partial_index(p, token, head, 0u);
  PartSum all = no_sum();
  f32 column = 0.0f;
  MF_ROLLED
  for (u32 first = 0u; first < p.num_parts; first += kMergeParts) {
    const u32 count =
        p.num_parts - first < kMergeParts ? p.num_parts - first : static_cast<u32>(kMergeParts);
    MF_GLOBAL(const u32)
    from = MF_CAST(const u32, partials + (partial_columns(p, index + first) + first_column));
    for (u32 i = t.index; i < count * (kMergeColumns / 4u); i += t.threads) {
      const u32 part = i / (kMergeColumns / 4u);
      const u32 c = i % (kMergeColumns / 4u) * 4u;
      if (first_column + c >= p.v_head_dim) continue;
      copy_async4(t, staged + (part * kMergeColumns + c),
                  from + (static_cast<u64>(part) * p.partial_words + c));
    }
    copies_commit(t);
    PartSum own = no_sum();
    if (t.index < count) {
      MF_GLOBAL(const f32) sums = partials + partial_sums(p, index + first + t.index);
      own.largest = sums[0];
      own.total = sums[1];
    }
    // The largest of all parts before this one.
    const f32 lanes = largest_so_far(t, own.largest);
    if (t.lane == 31u) simd_largest[t.simd] = lanes;
    barrier(t);
    f32 before = all.largest;
    for (u32 i = 0u; i < t.simd; ++i) before = mf_max(before, simd_largest[i]);
    const f32 lane_before = simd_shuffle(t, lanes, t.lane > 0u ? t.lane - 1u : 0u);
    if (t.lane > 0u) before = mf_max(before, lane_before);
    for (u32 i = 0u; i < t.simds; ++i) all.largest = mf_max(all.largest, simd_largest[i]);
    const PartSum so_far = {before, 0.0f};
    const PartMerge merge = merge_parts(so_far, own);
    ways[t.index * 4u] = merge.keep;
    ways[t.index * 4u + 1u] = merge.add;
    ways[t.index * 4u + 2u] = own.total * merge.add;
    copies_wait<0>(t);
    barrier(t);
    if (t.index < kMergeColumns && first_column + t.index < p.v_head_dim) {
      MF_ROLLED
      for (u32 begin = 0u; begin < count; begin += 8u) {
        MF_UNROLL
        for (u32 k = 0u; k < 8u; ++k) {
          const u32 part = begin + k;
          if (part >= count) continue;
          const f32 keep = ways[part * 4u];
          // Columns of a part that the query does not see need not have been written.
          const f32 add = ways[part * 4u + 1u];
          const f32 own_column = add != 0.0f ? columns[part * kMergeColumns + t.index] * add : 0.0f;
          all.total = mf_fma(all.total, keep, ways[part * 4u + 2u]);
          column = mf_fma(column, keep, own_column);
        }
      }
    }
    barrier(t);
  }
  if (t.index >= kMergeColumns || first_column + t.index >= p.v_head_dim) return;
  const f32 factor = finish_factor(p, all, sinks, head);
  out[token * p.out.token_stride + head * p.out.head_stride + first_column + t.index] =
      mf_fma(column, factor, 0.0f);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
