// The choice of the keys that tokens attend to, as its formula reads.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "backend/pooled_pages.h"
#include "backend/reference/cached_rows.h"
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
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
    const double product = dot(q, key);
    if (queries.weights != nullptr) {
      sum += queries.weights[j] * std::max(product, 0.0);
    } else {
      sum += queries.relu ? std::max(product, 0.0) : product;
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
      const float score = score_of(own, read_cached(keys, keys.k_pages, s, 0, space));
      if (s % keys_of_candidate == 0 || !(score <= best)) best = score;
    }
    return scores;
  }
};

/// Leaves the scores of candidates that lie in those of an earlier choice, of row `t`.
void mask(std::span<float> scores, const KeySelection& within, int64_t t, int64_t unit) {
  const int32_t* chosen = host_ptr<int32_t>(within.ids) + t * within.most();
  for (size_t c = 0; c < scores.size(); ++c) {
    const auto outer = static_cast<int32_t>(static_cast<int64_t>(c) * unit / within.unit);
    if (!std::binary_search(chosen, chosen + within.most(), outer)) {
      scores[c] = -std::numeric_limits<float>::infinity();
    }
  }
}

void choose_keys(const ops::SelectKeys& op, const Candidates& candidates) {
  const auto& [ids, q, k, head_weights, sequences, options, within] = op;
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
      if (op.is_within(candidates.position + t)) mask(scores, within, t, options.unit);
      for (int64_t c = count - options.recent; c < count; ++c) {
        scores[static_cast<size_t>(c)] = std::numeric_limits<float>::infinity();
      }
      int32_t* row = host_ptr<int32_t>(ids) + (t * groups + g) * most;
      choose({row, static_cast<size_t>(most)}, scores);
    }
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::SelectKeys& op) {
  for_each_sequence(op.sequences, op.q.dim(0), [&](const KvRows& s, const auto& part) {
    std::vector<Tensor> pages;
    KvView keys = s.kv;
    if (op.options.whole) {
      keys = pooled_view(s.kv, op.options.unit, op.k.dim(2), pages);
      for_each_pooled_key(part(op.k), s.kv.length, op.options.unit,
                          [&](const Tensor& rows, int64_t at) {
                            keys.length = at;
                            append_to_cache(keys, keys.k_pages, rows);
                          });
    } else {
      append_to_cache(keys, keys.k_pages, part(op.k));
    }
    ops::SelectKeys own = op;
    for (Tensor* rows : {&own.ids, &own.q, &own.head_weights, &own.within.ids}) *rows = part(*rows);
    choose_keys(own, {keys, s.kv.length, op.options});
  });
}

}  // namespace moeflux::reference
