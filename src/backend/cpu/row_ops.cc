// Element-wise ops, norms, routing and the weighted sum of experts.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "backend/host_top.h"
#include "base/units.h"

namespace moeflux::cpu {
namespace {

/// Rows one task takes, so that a task is worth claiming.
int64_t rows_at_once(int64_t cols) {
  constexpr int64_t kElements = 8 * 1024;
  return std::max<int64_t>(1, kElements / std::max<int64_t>(cols, 1));
}

}  // namespace

void CpuEncoder::copy(Tensor out, Tensor x) {
  flush();
  MF_CHECK(out.shape == x.shape);
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView from(x);
  const auto bytes = static_cast<size_t>(to.cols) * sizeof(float);
  if (bytes == 0) return;
  for (int64_t r = 0; r < to.rows; ++r) std::memcpy(to.row(r), from.row(r), bytes);
}

void CpuEncoder::add(Tensor out, Tensor a, Tensor b) {
  flush();
  MF_CHECK(out.shape == a.shape && out.shape == b.shape);
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView left(a);
  const RowsView right(b);
  const int64_t step = rows_at_once(to.cols);
  for_tasks((to.rows + step - 1) / step, to.rows * to.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(to.rows, (task + 1) * step); ++r) {
      kernels_.add(to.row(r), left.row(r), right.row(r), to.cols);
    }
  });
}

void CpuEncoder::mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) {
  flush();
  MF_CHECK(out.shape == x.shape);
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView from(x);
  const RowsView gates(gate);
  MF_CHECK(gates.rows == to.rows && (gates.cols == to.cols || gates.cols == 1));
  const ActivationKind kind = kernel_activation(activation);
  const int64_t gate_step = gates.cols == 1 ? 0 : 1;
  const int64_t step = rows_at_once(4 * to.cols);
  for_tasks((to.rows + step - 1) / step, 4 * to.rows * to.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(to.rows, (task + 1) * step); ++r) {
      kernels_.mul_activated(to.row(r), from.row(r), gates.row(r), gate_step, to.cols, kind);
    }
  });
}

void CpuEncoder::rms_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  flush();
  MF_CHECK(out.shape == x.shape);
  MF_CHECK(weight.is_null() || (weight.shape.back() == x.shape.back() && weight.is_contiguous()));
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView from(x);
  const float* w = floats_or_null(weight);
  const int64_t weights =
      weight.is_null() ? 1 : weight.num_elements() / std::max<int64_t>(1, to.cols);
  const int64_t step = rows_at_once(to.cols);
  for_tasks((to.rows + step - 1) / step, to.rows * to.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(to.rows, (task + 1) * step); ++r) {
      const float* own = weights == 1 ? w : w + r % weights * to.cols;
      kernels_.rms_norm(to.row(r), from.row(r), own, to.cols, eps);
    }
  });
}

void CpuEncoder::layer_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  flush();
  MF_CHECK(out.shape == x.shape && weight.num_elements() == x.shape.back());
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView from(x);
  const float* w = host_ptr<float>(weight);
  const int64_t step = rows_at_once(to.cols);
  for_tasks((to.rows + step - 1) / step, to.rows * to.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(to.rows, (task + 1) * step); ++r) {
      select_.layer_norm(to.row(r), from.row(r), w, to.cols, eps);
    }
  });
}

void CpuEncoder::add_bias(Tensor x, Tensor bias) {
  flush();
  const RowsView rows(x);
  MF_CHECK(bias.num_elements() == rows.cols);
  if (!status_.ok()) return;
  const float* b = host_ptr<float>(bias);
  const int64_t step = rows_at_once(rows.cols);
  for_tasks((rows.rows + step - 1) / step, rows.rows * rows.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(rows.rows, (task + 1) * step); ++r) {
      kernels_.add(rows.row(r), rows.row(r), b, rows.cols);
    }
  });
}

void CpuEncoder::scale(Tensor out, Tensor x, float factor) {
  flush();
  MF_CHECK(out.shape == x.shape);
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView from(x);
  const int64_t step = rows_at_once(to.cols);
  for_tasks((to.rows + step - 1) / step, to.rows * to.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(to.rows, (task + 1) * step); ++r) {
      kernels_.scale(to.row(r), from.row(r), factor, to.cols);
    }
  });
}

void CpuEncoder::soft_cap(Tensor x, float cap) {
  flush();
  if (!status_.ok()) return;
  const RowsView rows(x);
  // One row of logits is worth several threads. Pieces are whole cache lines.
  constexpr int64_t kPiece = 8 * 1024;
  const int64_t pieces = (rows.cols + kPiece - 1) / kPiece;
  for_tasks(rows.rows * pieces, 8 * rows.rows * rows.cols, [&](int64_t task) {
    const int64_t begin = task % pieces * kPiece;
    kernels_.soft_cap(rows.row(task / pieces) + begin, cap, std::min(kPiece, rows.cols - begin));
  });
}

void CpuEncoder::top_rows(Tensor values, Tensor ids, Tensor x) {
  flush();
  if (status_.ok()) host_top_rows(values, ids, x);
}

void CpuEncoder::glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) {
  flush();
  MF_CHECK(out.shape == gate.shape && out.shape == up.shape);
  if (!status_.ok()) return;
  const RowsView to(out);
  const RowsView gates(gate);
  const RowsView ups(up);
  const GluArgs unit = glu_args(options);
  const int64_t step = rows_at_once(4 * to.cols);
  for_tasks((to.rows + step - 1) / step, 4 * to.rows * to.cols, [&](int64_t task) {
    for (int64_t r = task * step; r < std::min(to.rows, (task + 1) * step); ++r) {
      gated_unit(to.row(r), gates.row(r), ups.row(r), to.cols, unit);
    }
  });
}

namespace {

RouterScoreKind score_kind(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax:
      return RouterScoreKind::kSoftmax;
    case RouterScore::kSigmoid:
      return RouterScoreKind::kSigmoid;
    case RouterScore::kSqrtSoftplus:
      return RouterScoreKind::kSqrtSoftplus;
  }
  __builtin_unreachable();
}

RouteArgs route_args(const RouterOptions& options, int64_t experts, int64_t top_k) {
  RouteArgs args{};
  args.correction_bias = floats_or_null(options.correction_bias);
  args.expert_scale = floats_or_null(options.expert_scale);
  args.experts = experts;
  args.groups = options.num_groups;
  args.groups_kept = options.groups_kept;
  args.top_k = top_k;
  args.score = score_kind(options.score);
  args.group_score = options.group_score == GroupScore::kTopTwoSum ? GroupScoreKind::kTopTwoSum
                                                                   : GroupScoreKind::kMax;
  args.normalize = options.normalize;
  args.normalize_epsilon = options.normalize_epsilon;
  args.normalize_least = options.normalize_least;
  args.scale = options.scale;
  return args;
}

}  // namespace

void CpuEncoder::route(const Routes& out, Tensor logits, const RouterOptions& options) {
  flush();
  const RowsView scores(logits);
  const int64_t top_k = out.ids.dim(1);
  MF_CHECK(out.ids.dim(0) == scores.rows && out.weights.shape == out.ids.shape &&
           top_k <= scores.cols && out.ids.is_contiguous() && out.weights.is_contiguous() &&
           options.num_groups > 0 && scores.cols % options.num_groups == 0);
  const bool is_listed = !options.table.is_null();
  MF_CHECK(!is_listed || (options.num_groups == 1 && options.correction_bias.is_null() &&
                          options.table.dim(1) == top_k && options.table.is_contiguous() &&
                          options.token_ids.num_elements() == scores.rows));
  if (!status_.ok() || scores.rows == 0) return;
  const auto width = static_cast<int64_t>(round_up(static_cast<uint64_t>(scores.cols), 16));
  float* space = workspace(floats_, scores.rows * 3 * width);
  int32_t* ids = host_ptr<int32_t>(out.ids);
  float* weights = host_ptr<float>(out.weights);
  const RouteArgs shared = route_args(options, scores.cols, top_k);
  const int32_t* table = is_listed ? host_ptr<int32_t>(options.table) : nullptr;
  const int32_t* tokens = is_listed ? host_ptr<int32_t>(options.token_ids) : nullptr;
  for_tasks(scores.rows, scores.rows * scores.cols * 8, [&](int64_t t) {
    RouteArgs args = shared;
    args.logits = scores.row(t);
    args.ids = ids + t * top_k;
    args.weights = weights + t * top_k;
    args.workspace = space + t * 3 * width;
    if (is_listed) args.listed = table + tokens[t] * top_k;
    kernels_.route(args);
  });
}

void CpuEncoder::combine_experts(Tensor out, Tensor slots, const Routes& routes) {
  flush();
  const RowsView to(out);
  const RowsView from(slots);
  const int64_t top_k = routes.weights.dim(1);
  MF_CHECK(from.rows == to.rows * top_k && from.cols == to.cols && slots.is_contiguous());
  if (!status_.ok()) return;
  const float* weights = host_ptr<float>(routes.weights);
  for_tasks(to.rows, to.rows * to.cols * top_k, [&](int64_t t) {
    kernels_.weighted_sum(to.row(t), from.row(t * top_k), from.cols, weights + t * top_k, top_k,
                          to.cols);
  });
}

}  // namespace moeflux::cpu
