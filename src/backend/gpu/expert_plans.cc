// Routing and the routed experts as plans.
#include <algorithm>
#include <cstring>

#include "backend/gpu/expert_launch.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kExpertThreads = 128;
constexpr uint32_t kSimds = kExpertThreads / kSimdLanes;
constexpr uint32_t kListThreads = 512;
// A thread a slot; and enough bytes on their way for the bus: 64 a thread.
constexpr uint32_t kFetchThreads = 256;
constexpr uint32_t kFetchGroupsPerCore = 2;
constexpr uint32_t kFetchSlotsMax = 64;

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

// Finds on the device which slots go to which entry.
bool list_slots(Recorder& recorder, ExpertLaunch& launch) {
  launch.tile = launch.slots >= 6 * launch.num_entries ? 8 : 4;
  if (launch.uses_mma) launch.tile = kMmaTokens;
  launch.groups = launch.slots / launch.tile + std::min(launch.num_entries, launch.slots);
  const size_t list_bytes = round_up(launch.slots * sizeof(u32), 16);
  const size_t range_bytes = round_up(2 * launch.num_entries * sizeof(u32), 16);
  const size_t tile_bytes = (1 + 3 * size_t{launch.groups}) * sizeof(u32);
  Binding space;
  if (!recorder.take_workspace(list_bytes + range_bytes + tile_bytes, space)) return false;
  launch.list = space;
  launch.list.size_bytes = launch.slots * sizeof(u32);
  Binding ranges = space;
  ranges.offset_bytes += list_bytes;
  ranges.size_bytes = 2 * launch.num_entries * sizeof(u32);
  launch.tiles = space;
  launch.tiles.offset_bytes += list_bytes + range_bytes;
  launch.tiles.size_bytes = tile_bytes;
  const ExpertListParams p{launch.slots, launch.num_ids, launch.num_entries, launch.tile};
  const uint32_t list_words =
      2 * (kListThreads / kSimdLanes + groups_for(launch.num_ids, kSimdLanes));
  Plan lists = make_plan(KernelId::expert_lists, {launch.num_entries, 1, 1}, kListThreads,
                         list_words * static_cast<uint32_t>(sizeof(u32)));
  lists.set_params(p);
  lists.bind(launch.ids);
  lists.bind(launch.map);
  lists.bind(launch.list);
  ranges.access = Access::kOverwrite;
  lists.bind(ranges);
  recorder.record(lists);
  Plan tiles = make_plan(KernelId::expert_tiles, {1, 1, 1}, kListThreads,
                         kListThreads / kSimdLanes * static_cast<uint32_t>(sizeof(u32)));
  tiles.set_params(p);
  ranges.access = Access::kRead;
  tiles.bind(ranges);
  tiles.bind(launch.tiles);
  recorder.record(tiles);
  launch.list.access = launch.tiles.access = Access::kRead;
  return true;
}

// Experts of any format.
void record_any_experts(Recorder& recorder, const ExpertLaunch& launch, const ExpertTensors& t) {
  const ExpertWeights& like = *launch.like;
  ExpertParams p{};
  p.gate = matrix_layout(like.gate);
  p.up = matrix_layout(like.up);
  p.gate.wide = launch.wide_gate ? 1 : 0;
  p.up.wide = launch.wide_up ? 1 : 0;
  p.x_stride = row_stride(t.x);
  p.out_stride = row_stride(t.intermediate);
  p.wide = is_wide(t.x) ? 1 : 0;
  p.slots = launch.slots;
  p.ids = launch.num_ids;
  p.top_k = launch.top_k;
  p.use_tiles = launch.use_tiles ? 1 : 0;
  p.stage_cols = stage_cols(like.gate.cols, launch.tile);
  p.bias_format = like.gate_bias.is_null() ? kFormatF32 : float_format(like.gate_bias.dtype);
  p.activation = static_cast<u32>(t.glu.activation);
  p.alpha = t.glu.alpha;
  p.limit = t.glu.limit;
  p.up_offset = t.glu.up_offset;
  const auto record_step = [&](KernelId kernel, uint32_t rows_per_simd, const Tensor& from,
                               const Tensor& to) {
    Plan plan = make_plan(
        kernel, {groups_for(p.gate.rows, kSimds * rows_per_simd), launch.groups, 1}, kExpertThreads,
        p.stage_cols * launch.tile * static_cast<uint32_t>(sizeof(float)));
    plan.set_params(p);
    plan.bind(launch.ids);
    plan.bind(launch.map);
    plan.bind(launch.entries);
    plan.bind(launch.list);
    plan.bind(launch.tiles);
    plan.bind(range_of(from, Access::kRead));
    plan.bind(range_of(to, Access::kWrite));
    recorder.record(plan);
  };
  // Two formats in one product have a kernel of their own, which comes in tiles only.
  const KernelId fused =
      like.gate.format == like.up.format
          ? matrix_kernel(KernelId::expert_gate_up_f32_t1, like.gate.format, launch.tile)
          : any_format_kernel(KernelId::expert_gate_up_any_t1, launch.tile);
  const bool one_token = launch.tile == 1;
  record_step(fused, one_token ? kGateUpRowsOfOneToken : kGateUpRowsOfTile, t.x, t.intermediate);
  p.gate = matrix_layout(like.down);
  p.gate.wide = launch.wide_down ? 1 : 0;
  p.x_stride = row_stride(t.intermediate);
  p.out_stride = row_stride(t.slots);
  p.wide = is_wide(t.intermediate) ? 1 : 0;
  p.top_k = 1;
  p.stage_cols = stage_cols(like.down.cols, launch.tile);
  p.bias_format = like.down_bias.is_null() ? kFormatF32 : float_format(like.down_bias.dtype);
  record_step(matrix_kernel(KernelId::expert_linear_f32_t1, like.down.format, launch.tile),
              one_token ? kRowsOfOneToken : kRowsOfTile, t.intermediate, t.slots);
}

}  // namespace

namespace {

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

Plan plan_route_listed(const RouteOp& route) {
  Plan plan =
      make_plan(KernelId::route_listed, {groups_for(route.params.tokens, kRouteSimds), 1, 1},
                kRouteSimds * kSimdLanes);
  plan.set_params(route.params);
  plan.bind(range_of(route.logits, Access::kRead));
  plan.bind(range_of(route.token_ids, Access::kRead));
  plan.bind(range_of(route.table, Access::kRead));
  plan.bind(range_of(route.expert_scale, Access::kRead));
  bind_output(plan, route.routes.ids);
  bind_output(plan, route.routes.weights);
  return plan;
}

}  // namespace

RouteOp route_op(const Routes& out, const Tensor& logits, const RouterOptions& options) {
  RouteParams p{};
  p.logits_stride = row_stride(logits);
  p.tokens = rows_of(logits);
  p.experts = static_cast<u32>(logits.shape.back());
  p.top_k = static_cast<u32>(out.ids.dim(1));
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
  return {p,
          out,
          logits,
          options.correction_bias,
          options.expert_scale,
          options.table,
          options.token_ids};
}

Plan plan_route(const RouteOp& route) {
  const RouteParams& p = route.params;
  if (!route.table.is_null()) return plan_route_listed(route);
  const bool by_group = p.thread_experts > 0;
  const uint32_t shared_words =
      by_group ? uint32_t{kRouteWords} : 2 * p.experts + p.num_groups + p.top_k;
  // Few tokens wait for their steps, many for each other.
  Plan plan = by_group && p.tokens > kFewTokensMax
                  ? make_plan(KernelId::route_many, {groups_for(p.tokens, kRouteSimds), 1, 1},
                              kRouteSimds * kSimdLanes)
                  : make_plan(KernelId::route_tokens, {p.tokens, 1, 1},
                              by_group ? uint32_t{kRouteThreads} : kSimdLanes,
                              shared_words * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(route.logits, Access::kRead));
  plan.bind(range_of(route.correction_bias, Access::kRead));
  plan.bind(range_of(route.expert_scale, Access::kRead));
  bind_output(plan, route.routes.ids);
  bind_output(plan, route.routes.weights);
  return plan;
}

void set_slots(const Routes& routes, ExpertLaunch& launch) {
  launch.slots = static_cast<uint32_t>(routes.ids.num_elements());
  launch.top_k = static_cast<uint32_t>(routes.ids.dim(1));
  launch.routes = routes;
  launch.ids = range_of(routes.ids, Access::kRead);
  launch.use_tiles = launch.slots > (launch.uses_mma ? kMmaDirectSlotsMax : kDirectSlotsMax);
  launch.groups = launch.slots;
  launch.tile = 1;
  launch.list = launch.tiles = {};
}

bool fetches(const ExpertLaunch& launch) {
  return launch.fetch.places > 0 && launch.slots <= kFetchSlotsMax;
}

Plan plan_fetch(const Recorder& recorder, const ExpertLaunch& launch) {
  FetchParams p = launch.fetch;
  p.slots = launch.slots;
  p.groups = kFetchGroupsPerCore * recorder.platform().cores();
  Plan plan = make_plan(KernelId::fetch_experts, {p.groups, 1, 1}, kFetchThreads,
                        (2 * p.slots + p.places + 1) * static_cast<uint32_t>(sizeof(u32)));
  plan.set_params(p);
  plan.bind(launch.ids);
  plan.bind(launch.map);
  plan.bind(launch.entries);
  Binding fetched = launch.fetched;
  fetched.access = Access::kReadWrite;  // entries of experts that were not chosen stay
  plan.bind(fetched);
  return plan;
}

bool takes_few_slots(const ExpertLaunch& launch) {
  return launch.uses_mma && (!launch.use_tiles || !launch.takes_many);
}

void record_experts(Recorder& recorder, ExpertLaunch& launch, const ExpertTensors& tensors) {
  if (launch.use_tiles && !list_slots(recorder, launch)) return;
  if (launch.uses_mma) {
    record_mma_experts(recorder, launch, tensors);
  } else {
    record_any_experts(recorder, launch, tensors);
  }
}

Plan plan_combine(const CombineOp& op) {
  const auto& [out, slots, weights] = op;
  CombineParams p{};
  p.slot_stride = row_stride(slots);
  p.out_stride = row_stride(out);
  p.tokens = rows_of(out);
  p.top_k = static_cast<u32>(weights.dim(1));
  p.cols = static_cast<u32>(out.shape.back());
  Plan plan = make_plan(KernelId::combine_slots, {groups_for(p.cols, kExpertThreads), p.tokens, 1},
                        kExpertThreads);
  plan.set_params(p);
  plan.bind(range_of(slots, Access::kRead));
  plan.bind(range_of(weights, Access::kRead));
  bind_output(plan, out);
  return plan;
}

}  // namespace moeflux::gpu
