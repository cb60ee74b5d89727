// The reference's choice of keys.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "backend/pooled_pages.h"
#include "backend/reference/cached_rows.h"
#include "backend/reference/reference_encoder.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"
#include "base/check.h"

namespace moeflux {
namespace {

/// The index heads of a group, of one token.
struct IndexQueries {
  RowsView q;  // [n * index_heads, dim]
  const float* weights;
  bool relu;      // without weights
  int64_t first;  // row of q
  int64_t heads;
};

float score_of(const IndexQueries& queries, const float* key) {
  double sum = 0.0;
  for (int64_t j = 0; j < queries.heads; ++j) {
    const std::span<const float> q(queries.q.row(queries.first + j),
                                   static_cast<size_t>(queries.q.cols));
    const double dot = reference::dot(q, key);
    if (queries.weights != nullptr) {
      sum += queries.weights[j] * std::max(dot, 0.0);
    } else {
      sum += queries.relu ? std::max(dot, 0.0) : dot;
    }
  }
  return static_cast<float>(sum);
}

/// Writes the chosen candidates, ascending.
void choose(std::span<int32_t> to, std::span<const float> scores) {
  const auto order = [&](int32_t c) {
    const float score = scores[static_cast<size_t>(c)];
    return std::isnan(score) ? std::numeric_limits<float>::infinity() : score;
  };
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) { return order(a) > order(b); });
  ids.resize(to.size());
  std::ranges::sort(ids);
  std::ranges::copy(ids, to.begin());
}

struct Candidates {
  KvView keys;  // with a row a key
  int64_t position;
  const SelectOptions& options;

  /// The best of the keys that the token sees of each; of one without a key, the least there is.
  std::vector<float> scores(const IndexQueries& own, int64_t token, std::span<float> space) const {
    const int64_t key_tokens = options.key_tokens();
    const int64_t keys_of_candidate = options.unit / key_tokens;
    std::vector<float> scores(static_cast<size_t>(options.candidates_at(position + token)),
                              -std::numeric_limits<float>::infinity());
    for (int64_t s = 0; s < (position + token + 1) / key_tokens; ++s) {
      float& best = scores[static_cast<size_t>(s / keys_of_candidate)];
      const float score = score_of(own, reference::read_cached(keys, keys.k_pages, s, 0, space));
      if (s % keys_of_candidate == 0 || !(score <= best)) best = score;
    }
    return scores;
  }
};

void select(const Tensor& ids, const Tensor& q, const Tensor& head_weights,
            const Candidates& candidates) {
  const SelectOptions& options = candidates.options;
  const int64_t heads = q.dim(1);
  const int64_t groups = ids.dim(1);
  const int64_t most = ids.dim(2);
  const RowsView queries(q);
  std::vector<float> space(static_cast<size_t>(queries.cols));
  for (int64_t t = 0; t < q.dim(0); ++t) {
    const int64_t count = options.candidates_at(candidates.position + t);
    if (count <= most) continue;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * (heads / groups);
      const IndexQueries own{
          queries, head_weights.is_null() ? nullptr : RowsView(head_weights).row(t) + first,
          options.relu, t * heads + first, heads / groups};
      std::vector<float> scores = candidates.scores(own, t, space);
      for (int64_t c = count - options.recent; c < count; ++c) {
        scores[static_cast<size_t>(c)] = std::numeric_limits<float>::infinity();
      }
      int32_t* row = host_ptr<int32_t>(ids) + (t * groups + g) * most;
      choose({row, static_cast<size_t>(most)}, scores);
    }
  }
}

}  // namespace

void ReferenceEncoder::select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                                   std::span<const KvRows> sequences,
                                   const SelectOptions& options) {
  MF_CHECK(q.dim(1) % ids.dim(1) == 0 && k.dim(1) == 1 && k.dim(2) == q.dim(2) &&
           ids.is_contiguous() && (options.unit == 1 || options.whole || options.recent >= 1) &&
           options.recent <= ids.dim(2) && (!options.whole || options.recent <= 1));
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    std::vector<Tensor> pages;
    KvView keys = s.kv;
    if (options.whole) {
      keys = pooled_view(s.kv, options.unit, k.dim(2), pages);
      for_each_pooled_key(part(k), s.kv.length, options.unit, [&](const Tensor& rows, int64_t at) {
        keys.length = at;
        reference::append_to_cache(keys, keys.k_pages, rows);
      });
    } else {
      reference::append_to_cache(keys, keys.k_pages, part(k));
    }
    select(part(ids), part(q), part(head_weights), {keys, s.kv.length, options});
  });
}

}  // namespace moeflux
