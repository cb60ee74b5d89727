// Routing and the routed experts as plans.
#include <algorithm>
#include <cstring>

#include "backend/gpu/expert_launch.h"
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kSimds = kThreads / kSimdLanes;
constexpr int64_t kExpertsMax = 1024;  // a bit each in 32 lanes of 32 bits
// Up to here each slot reads its expert by itself; above, slots of one expert share a read.
constexpr uint32_t kDirectSlotsMax = 16;
constexpr uint32_t kListThreads = 512;

bool share_kernels(const ExpertWeights& a, const ExpertWeights& b) {
  const auto bias_dtype = [](const Tensor& bias) {
    return bias.is_null() ? DType::kF32 : bias.dtype;
  };
  return a.gate.format == b.gate.format && a.up.format == b.up.format &&
         a.down.format == b.down.format && bias_dtype(a.gate_bias) == bias_dtype(b.gate_bias) &&
         bias_dtype(a.down_bias) == bias_dtype(b.down_bias);
}

// Experts a thread, where a group judges them in registers.
u32 thread_experts(const RouteParams& p) {
  const bool has_known_order = p.sigmoid != 0 || p.has_correction == 0;
  const bool has_own_groups = p.num_groups == 1 || (p.sigmoid != 0 && p.experts <= kRouteThreads &&
                                                    p.experts / p.num_groups == kRouteGroupExperts);
  if (!has_known_order || !has_own_groups || p.top_k > kRouteRanksMax ||
      p.experts > kRouteExpertsMax) {
    return 0;
  }
  return p.experts <= kRouteThreads ? 1 : 2;
}

bool has_wide_rows(const Weight& weight) { return matrix_layout(weight).wide != 0; }

}  // namespace

void GpuEncoder::route(const Routes& out, Tensor logits, const RouterOptions& options) {
  if (!status_.ok()) return;
  const int64_t experts = logits.shape.back();
  const int64_t top_k = out.ids.dim(1);
  MF_CHECK(out.ids.dim(0) == rows_of(logits) &&
           out.weights.num_elements() == out.ids.num_elements() && top_k <= experts &&
           out.ids.is_contiguous() && out.weights.is_contiguous() &&
           experts % options.num_groups == 0);
  if (experts > kExpertsMax) {
    fail(
        make_error(ErrorCode::kUnsupported, "route: {} experts, at most {}", experts, kExpertsMax));
    return;
  }
  RouteParams p{};
  p.logits_stride = row_stride(logits);
  p.tokens = rows_of(logits);
  p.experts = static_cast<u32>(experts);
  p.top_k = static_cast<u32>(top_k);
  p.sigmoid = options.score == RouterScore::kSigmoid ? 1 : 0;
  p.num_groups = static_cast<u32>(options.num_groups);
  p.groups_kept = static_cast<u32>(options.groups_kept);
  p.top_two = options.group_score == GroupScore::kTopTwoSum ? 1 : 0;
  p.normalize = options.normalize ? 1 : 0;
  p.has_correction = options.correction_bias.is_null() ? 0 : 1;
  p.has_expert_scale = options.expert_scale.is_null() ? 0 : 1;
  p.normalize_epsilon = options.normalize_epsilon;
  p.scale = options.scale;
  p.thread_experts = thread_experts(p);
  flush_waiting();
  const WaitingRoute route{p, out, logits, options.correction_bias, options.expert_scale};
  if (p.thread_experts == 0 || p.tokens * p.top_k > kDirectSlotsMax) return record_route(route);
  waiting_route_ = route;
}

void GpuEncoder::record_route(const WaitingRoute& route) {
  const RouteParams& p = route.params;
  const bool by_group = p.thread_experts > 0;
  const uint32_t shared_words =
      by_group ? uint32_t{kRouteWords} : 2 * p.experts + p.num_groups + p.top_k;
  // Few tokens wait for their steps, many for each other.
  Plan plan = by_group && p.tokens > kSingleTokensMax
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
  record(plan);
}

bool GpuEncoder::check_expert(const ExpertWeights& expert) {
  if (!supports("expert_ffn", expert.gate) || !supports("expert_ffn", expert.up) ||
      !supports("expert_ffn", expert.down)) {
    return false;
  }
  MF_CHECK(expert.gate.rows == expert.up.rows && expert.gate.cols == expert.up.cols &&
           expert.down.cols == expert.gate.rows);
  return true;
}

// Makes the table of those experts from `like` on that run in the same kernels.
bool GpuEncoder::place_experts(std::span<const ExpertWeights> ready, size_t like,
                               ExpertLaunch& launch, StayingExperts* stay) {
  launch.num_ids = 0;
  launch.num_entries = 0;
  for (size_t i = like; i < ready.size(); ++i) {
    if (experts_done_[i] != 0 || !share_kernels(ready[like], ready[i])) continue;
    launch.num_ids = std::max(launch.num_ids, static_cast<uint32_t>(index(ready[i].expert)) + 1);
    ++launch.num_entries;
  }
  const size_t map_bytes = round_up(launch.num_ids * sizeof(u32), 8);
  table_bytes_.assign(map_bytes + launch.num_entries * sizeof(ExpertEntry), std::byte{0xff});
  u32 entry = 0;
  for (size_t i = like; i < ready.size(); ++i) {
    const ExpertWeights& e = ready[i];
    if (experts_done_[i] != 0 || !share_kernels(ready[like], e)) continue;
    const ExpertEntry values{addresses_of(e.gate, e.gate_bias), addresses_of(e.up, e.up_bias),
                             addresses_of(e.down, e.down_bias)};
    std::memcpy(table_bytes_.data() + static_cast<size_t>(index(e.expert)) * sizeof(u32), &entry,
                sizeof(u32));
    std::memcpy(table_bytes_.data() + map_bytes + entry * sizeof(ExpertEntry), &values,
                sizeof(ExpertEntry));
    launch.wide_gate = launch.wide_gate && has_wide_rows(e.gate);
    launch.wide_up = launch.wide_up && has_wide_rows(e.up);
    launch.wide_down = launch.wide_down && has_wide_rows(e.down);
    launch.wide_scales = launch.wide_scales && has_wide_scales(e.gate) && has_wide_scales(e.up);
    launch.wide_down_scales = launch.wide_down_scales && has_wide_scales(e.down);
    experts_done_[i] = 1;
    ++entry;
  }
  const bool keeps = stay != nullptr && launch.num_entries == ready.size();
  const Result<Binding> table = keeps ? keep_table(*stay) : place_table();
  if (!table.ok()) return fail(table.error());
  launch.map = *table;
  launch.map.size_bytes = launch.num_ids * sizeof(u32);
  launch.entries = *table;
  launch.entries.offset_bytes += map_bytes;
  launch.entries.size_bytes = launch.num_entries * sizeof(ExpertEntry);
  if (keeps) {
    find_stride(ready, std::span(table_bytes_).subspan(map_bytes), launch);
    stay->launch = launch;
    stay->is_known = true;
  }
  return true;
}

// Finds on the device which slots go to which entry, unless slots are few.
bool GpuEncoder::list_slots(const Routes& routes, ExpertLaunch& launch) {
  launch.routes = routes;
  launch.ids = range_of(routes.ids, Access::kRead);
  launch.use_tiles = launch.slots > kDirectSlotsMax;
  launch.groups = launch.slots;
  launch.tile = 1;
  launch.list = launch.tiles = {};
  if (!launch.use_tiles) return true;
  launch.tile = launch.slots >= 6 * launch.num_entries ? 8 : 4;
  if (launch.uses_mma) launch.tile = kMmaTokens;
  launch.groups = launch.slots / launch.tile + std::min(launch.num_entries, launch.slots);
  const size_t list_bytes = round_up(launch.slots * sizeof(u32), 16);
  const size_t range_bytes = round_up(2 * launch.num_entries * sizeof(u32), 16);
  const size_t tile_bytes = (1 + 3 * size_t{launch.groups}) * sizeof(u32);
  const Result<Binding> space = workspace_.take(list_bytes + range_bytes + tile_bytes);
  if (!space.ok()) return fail(space.error());
  launch.list = *space;
  launch.list.size_bytes = launch.slots * sizeof(u32);
  Binding ranges = *space;
  ranges.offset_bytes += list_bytes;
  ranges.size_bytes = 2 * launch.num_entries * sizeof(u32);
  launch.tiles = *space;
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
  record(lists);
  Plan tiles = make_plan(KernelId::expert_tiles, {1, 1, 1}, kListThreads,
                         kListThreads / kSimdLanes * static_cast<uint32_t>(sizeof(u32)));
  tiles.set_params(p);
  ranges.access = Access::kRead;
  tiles.bind(ranges);
  tiles.bind(launch.tiles);
  record(tiles);
  launch.list.access = launch.tiles.access = Access::kRead;
  return true;
}

void GpuEncoder::launch_experts(const ExpertWeights& like, const ExpertLaunch& launch,
                                const Tensor& slots, const Tensor& intermediate, const Tensor& x,
                                const GluOptions& glu) {
  ExpertParams p{};
  p.gate = matrix_layout(like.gate);
  p.up = matrix_layout(like.up);
  p.gate.wide = launch.wide_gate ? 1 : 0;
  p.up.wide = launch.wide_up ? 1 : 0;
  p.x_stride = row_stride(x);
  p.out_stride = row_stride(intermediate);
  p.wide = is_wide(x) ? 1 : 0;
  p.slots = launch.slots;
  p.ids = launch.num_ids;
  p.top_k = launch.top_k;
  p.use_tiles = launch.use_tiles ? 1 : 0;
  p.stage_cols = stage_cols(like.gate.cols, launch.tile);
  p.bias_format = like.gate_bias.is_null() ? kFormatF32 : float_format(like.gate_bias.dtype);
  p.activation = static_cast<u32>(glu.activation);
  p.alpha = glu.alpha;
  p.limit = glu.limit;
  p.up_offset = glu.up_offset;
  const auto record_step = [&](KernelId kernel, uint32_t rows_per_simd, const Tensor& from,
                               const Tensor& to) {
    Plan plan =
        make_plan(kernel, {groups_for(p.gate.rows, kSimds * rows_per_simd), launch.groups, 1},
                  kThreads, p.stage_cols * launch.tile * static_cast<uint32_t>(sizeof(float)));
    plan.set_params(p);
    plan.bind(launch.ids);
    plan.bind(launch.map);
    plan.bind(launch.entries);
    plan.bind(launch.list);
    plan.bind(launch.tiles);
    plan.bind(range_of(from, Access::kRead));
    plan.bind(range_of(to, Access::kWrite));
    record(plan);
  };
  // Two formats in one product have a kernel of their own, which comes in tiles only.
  const KernelId fused =
      like.gate.format == like.up.format
          ? matrix_kernel(KernelId::expert_gate_up_f32_t1, like.gate.format, launch.tile)
          : matrix_kernel(KernelId::expert_gate_up_any_t1, QuantFormat::plain(DType::kF32),
                          launch.tile);
  const bool one_token = launch.tile == 1;
  record_step(fused, one_token ? kGateUpRowsOfOneToken : kGateUpRowsOfTile, x, intermediate);
  p.gate = matrix_layout(like.down);
  p.gate.wide = launch.wide_down ? 1 : 0;
  p.x_stride = row_stride(intermediate);
  p.out_stride = row_stride(slots);
  p.wide = is_wide(intermediate) ? 1 : 0;
  p.top_k = 1;
  p.stage_cols = stage_cols(like.down.cols, launch.tile);
  p.bias_format = like.down_bias.is_null() ? kFormatF32 : float_format(like.down_bias.dtype);
  record_step(matrix_kernel(KernelId::expert_linear_f32_t1, like.down.format, launch.tile),
              one_token ? kRowsOfOneToken : kRowsOfTile, intermediate, slots);
}

void GpuEncoder::launch_any(const ExpertWeights& like, const ExpertLaunch& launch,
                            const Tensor& slots, const Tensor& intermediate, const Tensor& x,
                            const GluOptions& glu) {
  if (launch.uses_mma) {
    launch_mma_experts(like, launch, slots, intermediate, x, glu);
  } else {
    launch_experts(like, launch, slots, intermediate, x, glu);
  }
}

void GpuEncoder::expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                            std::span<const ExpertWeights> ready, const GluOptions& glu) {
  if (!status_.ok() || ready.empty() || routes.ids.num_elements() == 0) return;
  MF_CHECK(routes.ids.is_contiguous() && routes.ids.dtype == DType::kI32);
  StayingExperts* const stay = find_staying(ready);
  if (stay != nullptr && stay->is_known) {
    ExpertLaunch launch = stay->launch;
    launch.slots = static_cast<uint32_t>(routes.ids.num_elements());
    launch.top_k = static_cast<uint32_t>(routes.ids.dim(1));
    if (list_slots(routes, launch)) launch_any(ready[0], launch, slots, intermediate, x, glu);
    return;
  }
  for (const ExpertWeights& expert : ready) {
    if (!check_expert(expert)) return;
  }
  experts_done_.assign(ready.size(), 0);
  for (size_t i = 0; i < ready.size(); ++i) {
    if (experts_done_[i] != 0) continue;
    ExpertLaunch launch;
    launch.slots = static_cast<uint32_t>(routes.ids.num_elements());
    launch.top_k = static_cast<uint32_t>(routes.ids.dim(1));
    const ExpertWeights& like = ready[i];
    launch.uses_mma =
        uses_mma(like.gate) && uses_mma(like.down) && like.gate.format == like.up.format;
    if (!place_experts(ready, i, launch, stay) || !list_slots(routes, launch)) return;
    launch_any(like, launch, slots, intermediate, x, glu);
  }
}

void GpuEncoder::combine_experts(Tensor out, Tensor slots, const Routes& routes) {
  if (!start_chain(out, slots, routes)) record_combine(out, slots, routes.weights);
}

void GpuEncoder::record_combine(const Tensor& out, const Tensor& slots, const Tensor& weights) {
  CombineParams p{};
  p.slot_stride = row_stride(slots);
  p.out_stride = row_stride(out);
  p.tokens = rows_of(out);
  p.top_k = static_cast<u32>(weights.dim(1));
  p.cols = static_cast<u32>(out.shape.back());
  Plan plan =
      make_plan(KernelId::combine_slots, {groups_for(p.cols, kThreads), p.tokens, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(slots, Access::kRead));
  plan.bind(range_of(weights, Access::kRead));
  bind_output(plan, out);
  record(plan);
}

}  // namespace moeflux::gpu
