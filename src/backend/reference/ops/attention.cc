// Attention of queries to keys and values, which it appends to the cache, as its formula reads.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backend/pooled_pages.h"
#include "backend/reference/cached_rows.h"
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
namespace {

/// A key, and its value.
struct Key {
  const KvView* kv;
  int64_t position;
};

// The positions that row t's heads of a kv head attend to.
std::vector<int64_t> positions_of(const KvView& kv, const AttentionOptions& options, int64_t t,
                                  int64_t group) {
  const int64_t position = kv.length + t;
  std::vector<int64_t> positions;
  const KeySelection& selected = options.selected;
  if (selected.is_null() || position < selected.dense_end()) {
    const int64_t end = position + 1;
    const int64_t begin = first_seen(position, options.window, options.chunked);
    for (int64_t s = begin; s < end; ++s) positions.push_back(s);
    return positions;
  }
  const int32_t* ids = host_ptr<int32_t>(selected.ids.slice(0, t, 1)) + group * selected.most();
  for (int64_t i = 0; i < selected.most(); ++i) {
    const int64_t first = ids[i] * selected.unit;
    for (int64_t s = first; s < std::min(first + selected.unit, position + 1); ++s) {
      positions.push_back(s);
    }
  }
  return positions;
}

// The numbers of the pools that row t attends to.
std::vector<int64_t> pools_of(const PooledKeys& pooled, int64_t t, int64_t position) {
  std::vector<int64_t> pools;
  const int64_t count = pooled.is_null() ? 0 : pooled.count_at(position);
  for (int64_t i = 0; i < count; ++i) {
    pools.push_back(
        pooled.chooses_at(position) ? host_ptr<int32_t>(pooled.ids)[t * pooled.ids.dim(2) + i] : i);
  }
  return pools;
}

// The bias of the score of a key so many positions before the query.
double bias_of(const Tensor& bias, int64_t row, int64_t distance) {
  if (bias.is_null() || distance >= bias.dim(2)) return 0.0;
  return host_ptr<float>(bias)[row * bias.dim(2) + distance];
}

KvView append_pooled(const PooledKeys& pooled, std::vector<Tensor>& storage) {
  if (pooled.is_null()) return {};
  const KvView& kv = pooled.sequences.front().kv;
  KvView pools = pooled_view(kv, pooled.unit, pooled.keys.dim(2), storage);
  for_each_pooled_key(pooled.keys, kv.length, pooled.unit, [&](const Tensor& rows, int64_t at) {
    pools.length = at;
    append_to_cache(pools, pools.k_pages, rows);
  });
  return pools;
}

void attend(const ops::Attention& op) {
  const KvView& kv = op.sequences.front().kv;
  const AttentionOptions& options = op.options;
  const RowsView queries(op.q);
  const RowsView outs(op.out);
  const int64_t n = op.q.dim(0);
  const int64_t heads = op.q.dim(1);
  const int64_t kv_heads = op.k.dim(1);
  append_to_cache(kv, kv.k_pages, op.k);
  if (!op.v.is_null()) append_to_cache(kv, kv.v_pages, op.v);
  std::vector<double> scores;
  std::vector<float> space(static_cast<size_t>(std::max(queries.cols, outs.cols)));
  std::vector<double> sum(static_cast<size_t>(outs.cols));
  const KeySelection& selected = options.selected;
  std::vector<Tensor> storage;
  const KvView pools = append_pooled(options.pooled, storage);
  const int64_t kv_heads_of_group = selected.is_null() ? kv_heads : kv_heads / selected.groups();
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv_head = h / (heads / kv_heads);
      std::vector<Key> keys;
      for (const int64_t s : pools_of(options.pooled, t, kv.length + t))
        keys.push_back({&pools, s});
      for (const int64_t s : positions_of(kv, options, t, kv_head / kv_heads_of_group)) {
        keys.push_back({&kv, s});
      }
      const std::span<const float> query(queries.row(t * heads + h),
                                         static_cast<size_t>(queries.cols));
      scores.assign(keys.size(), 0.0);
      const bool has_sink = !options.sinks.is_null();
      const int64_t sink_row = options.sinks.shape.rank() == 2 ? t : 0;
      const double sink =
          has_sink ? host_ptr<float>(options.sinks)[sink_row * heads + h] : -INFINITY;
      double largest = sink;
      for (size_t i = 0; i < keys.size(); ++i) {
        const KvView& own = *keys[i].kv;
        const float* key = read_cached(own, own.k_pages, keys[i].position, kv_head, space);
        scores[i] = dot(query, key) * options.scale +
                    bias_of(options.distance_bias, t * heads + h, kv.length + t - keys[i].position);
        largest = std::max(largest, scores[i]);
      }
      double total = has_sink ? std::exp(sink - largest) : 0.0;
      std::fill(sum.begin(), sum.end(), 0.0);
      for (size_t i = 0; i < keys.size(); ++i) {
        const double p = std::exp(scores[i] - largest);
        const KvView& own = *keys[i].kv;
        const float* value = read_cached(own, own.v_pages, keys[i].position, kv_head, space);
        total += p;
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += p * value[d];
      }
      float* result = outs.row(t * heads + h);
      for (size_t d = 0; d < sum.size(); ++d) result[d] = static_cast<float>(sum[d] / total);
    }
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::Attention& op) { for_each_part(op, attend); }

}  // namespace moeflux::reference
