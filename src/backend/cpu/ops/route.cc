#include "backend/ops/route.h"

#include "backend/cpu/cpu_context.h"
#include "base/units.h"

namespace moeflux::cpu {
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

void run(CpuContext& context, const ops::Route& op) {
  const RowsView scores(op.logits);
  const int64_t top_k = op.out.ids.dim(1);
  const auto width = static_cast<int64_t>(round_up(static_cast<uint64_t>(scores.cols), 16));
  float* space = context.spaces.floats(scores.rows * 3 * width);
  int32_t* ids = host_ptr<int32_t>(op.out.ids);
  float* weights = host_ptr<float>(op.out.weights);
  const RouteArgs shared = route_args(op.options, scores.cols, top_k);
  const bool is_listed = !op.options.table.is_null();
  const int32_t* table = is_listed ? host_ptr<int32_t>(op.options.table) : nullptr;
  const int32_t* tokens = is_listed ? host_ptr<int32_t>(op.options.token_ids) : nullptr;
  context.workers.for_tasks(scores.rows, scores.rows * scores.cols * 8, [&](int64_t t) {
    RouteArgs args = shared;
    args.logits = scores.row(t);
    args.ids = ids + t * top_k;
    args.weights = weights + t * top_k;
    args.workspace = space + t * 3 * width;
    if (is_listed) args.listed = table + tokens[t] * top_k;
    context.kernels.route(args);
  });
}

}  // namespace moeflux::cpu
