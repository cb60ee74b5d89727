// The choice of experts, as its formula reads.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/reference/cells.h"

namespace moeflux::reference {
namespace {

// The score of one expert; of softmax, up to a factor.
double score_of(double logit, double largest, RouterScore kind) {
  switch (kind) {
    case RouterScore::kSoftmax:
      return std::exp(logit - largest);
    case RouterScore::kSigmoid:
      return 1.0 / (1.0 + std::exp(-logit));
    case RouterScore::kSqrtSoftplus:
      return std::sqrt(std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
  }
  __builtin_unreachable();
}

std::vector<double> scores_of(const float* logits, int64_t experts, RouterScore kind) {
  std::vector<double> p(static_cast<size_t>(experts));
  const double largest = *std::max_element(logits, logits + experts);
  double total = 0.0;
  for (size_t e = 0; e < p.size(); ++e) {
    p[e] = score_of(logits[e], largest, kind);
    total += p[e];
  }
  if (kind == RouterScore::kSoftmax) {
    for (double& value : p) value /= total;
  }
  return p;
}

// Indices of the `count` largest values, best first, ties to the lower index.
std::vector<int32_t> best_of(const std::vector<double>& values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

double group_score(const double* c, size_t size, GroupScore kind) {
  double best = -INFINITY;
  double second = -INFINITY;
  for (size_t i = 0; i < size; ++i) {
    if (c[i] > best) {
      second = best;
      best = c[i];
    } else {
      second = std::max(second, c[i]);
    }
  }
  return kind == GroupScore::kMax || size == 1 ? best : best + second;
}

// Experts outside the best groups score 0, as in the reference implementations: with a negative
// correction bias an expert of a kept group may lose to them.
void mask_groups(std::vector<double>& c, const RouterOptions& options) {
  const size_t size = c.size() / static_cast<size_t>(options.num_groups);
  std::vector<double> groups;
  for (size_t g = 0; g < static_cast<size_t>(options.num_groups); ++g) {
    groups.push_back(group_score(c.data() + g * size, size, options.group_score));
  }
  const std::vector<int32_t> kept = best_of(groups, options.groups_kept);
  for (size_t g = 0; g < groups.size(); ++g) {
    if (std::find(kept.begin(), kept.end(), static_cast<int32_t>(g)) != kept.end()) continue;
    std::fill_n(c.begin() + static_cast<int64_t>(g * size), size, 0.0);
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::Route& op) {
  const RowsView rows(op.logits);
  const int64_t top_k = op.out.ids.dim(1);
  const bool is_listed = !op.options.table.is_null();
  for (int64_t t = 0; t < rows.rows; ++t) {
    const std::vector<double> p = scores_of(rows.row(t), rows.cols, op.options.score);
    std::vector<double> c = p;
    for (size_t e = 0; e < c.size() && !op.options.correction_bias.is_null(); ++e) {
      c[e] += host_ptr<float>(op.options.correction_bias)[e];
    }
    if (op.options.num_groups > 1) mask_groups(c, op.options);
    std::vector<int32_t> chosen;
    if (is_listed) {
      const int32_t token = host_ptr<int32_t>(op.options.token_ids)[t];
      const int32_t* listed = host_ptr<int32_t>(op.options.table) + token * top_k;
      chosen.assign(listed, listed + top_k);
    } else {
      chosen = best_of(c, top_k);
    }
    double sum = op.options.normalize_epsilon;
    for (const int32_t e : chosen) sum += p[static_cast<size_t>(e)];
    sum = std::max(sum, static_cast<double>(op.options.normalize_least));
    for (int64_t r = 0; r < top_k; ++r) {
      const int32_t e = chosen[static_cast<size_t>(r)];
      double weight = p[static_cast<size_t>(e)] * op.options.scale;
      if (op.options.normalize) weight /= sum;
      if (!op.options.expert_scale.is_null()) weight *= host_ptr<float>(op.options.expert_scale)[e];
      host_ptr<int32_t>(op.out.ids)[t * top_k + r] = e;
      host_ptr<float>(op.out.weights)[t * top_k + r] = static_cast<float>(weight);
    }
  }
}

}  // namespace moeflux::reference
