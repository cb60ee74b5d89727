#include "backend/ops/route.h"

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"
#include "backend/gpu/supports.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

constexpr int64_t kExpertsMax = 1024;  // a bit each in 32 lanes of 32 bits
// Up to here a group finds the experts of a token, above a SIMD group. An H200 takes 4.7 to 5.2 us
// for 32 to 256 tokens with groups, 7.4 with SIMD groups; 6.5 and 7.5 for 512.
constexpr uint32_t kGroupTokensMax = 256;

// Experts a thread, where a group judges them in registers.
u32 thread_experts(const RouteParams& p) {
  const bool has_known_order = p.score != kRouteSoftmax || p.has_correction == 0;
  const bool has_own_groups =
      p.num_groups == 1 || (p.score != kRouteSoftmax && p.experts <= kRouteThreads &&
                            p.experts / p.num_groups == kRouteGroupExperts);
  if (!has_known_order || !has_own_groups || p.top_k > kRouteRanksMax ||
      p.experts > kRouteExpertsMax) {
    return 0;
  }
  return p.experts <= kRouteThreads ? 1 : 2;
}

u32 score_kind(RouterScore score) {
  switch (score) {
    case RouterScore::kSoftmax:
      return kRouteSoftmax;
    case RouterScore::kSigmoid:
      return kRouteSigmoid;
    case RouterScore::kSqrtSoftplus:
      return kRouteSqrtSoftplus;
  }
  __builtin_unreachable();
}

Plan plan_route_listed(const ops::Route& route) {
  const RouteParams p = route_params(route);
  Plan plan = make_plan(KernelId::route_listed, {groups_for(p.tokens, kRouteSimds), 1, 1},
                        kRouteSimds * kSimdLanes);
  plan.set_params(p);
  plan.bind(range_of(route.logits, Access::kRead));
  plan.bind(range_of(route.options.token_ids, Access::kRead));
  plan.bind(range_of(route.options.table, Access::kRead));
  plan.bind(range_of(route.options.expert_scale, Access::kRead));
  bind_output(plan, route.out.ids);
  bind_output(plan, route.out.weights);
  return plan;
}

}  // namespace

RouteParams route_params(const ops::Route& op) {
  const RouterOptions& options = op.options;
  RouteParams p{};
  p.logits_stride = row_stride(op.logits);
  p.tokens = rows_of(op.logits);
  p.experts = static_cast<u32>(op.logits.shape.back());
  p.top_k = static_cast<u32>(op.out.ids.dim(1));
  p.score = score_kind(options.score);
  p.num_groups = static_cast<u32>(options.num_groups);
  p.groups_kept = static_cast<u32>(options.groups_kept);
  p.top_two = options.group_score == GroupScore::kTopTwoSum ? 1 : 0;
  p.normalize = options.normalize ? 1 : 0;
  p.has_correction = options.correction_bias.is_null() ? 0 : 1;
  p.has_expert_scale = options.expert_scale.is_null() ? 0 : 1;
  p.normalize_epsilon = options.normalize_epsilon;
  p.normalize_least = options.normalize_least;
  p.scale = options.scale;
  p.thread_experts = options.table.is_null() ? thread_experts(p) : 0;
  return p;
}

Plan plan_route(const ops::Route& route) {
  if (!route.options.table.is_null()) return plan_route_listed(route);
  const RouteParams p = route_params(route);
  const bool by_group = p.thread_experts > 0;
  const uint32_t shared_words =
      by_group ? uint32_t{kRouteWords} : 2 * p.experts + p.num_groups + p.top_k;
  Plan plan = by_group && p.tokens > kGroupTokensMax
                  ? make_plan(KernelId::route_many, {groups_for(p.tokens, kRouteSimds), 1, 1},
                              kRouteSimds * kSimdLanes)
                  : make_plan(KernelId::route_tokens, {p.tokens, 1, 1},
                              by_group ? uint32_t{kRouteThreads} : kSimdLanes,
                              shared_words * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(route.logits, Access::kRead));
  plan.bind(range_of(route.options.correction_bias, Access::kRead));
  plan.bind(range_of(route.options.expert_scale, Access::kRead));
  bind_output(plan, route.out.ids);
  bind_output(plan, route.out.weights);
  return plan;
}

Status supports(const Platform& /*platform*/, const ops::Route& op) {
  const int64_t experts = op.logits.shape.back();
  if (experts > kExpertsMax) {
    return make_error(ErrorCode::kUnsupported, "route: {} experts, at most {}", experts,
                      kExpertsMax);
  }
  const int64_t listed = op.options.table.is_null() ? 0 : op.out.ids.dim(1);
  if (listed <= int64_t{kSimdLanes}) return {};
  return make_error(ErrorCode::kUnsupported, "route: {} experts of a token in a table, at most {}",
                    listed, kSimdLanes);
}

void run(GpuContext& gpu, const ops::Route& op) {
  if (gpu.fuse(op) == Action::kLaunch) gpu.record(plan_route(op));
}

}  // namespace moeflux::gpu
