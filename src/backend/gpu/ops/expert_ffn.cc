// Few slots on matrix units share two launches with routes and a network that wait.
#include "backend/ops/expert_ffn.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/few_slots_plans.h"
#include "backend/gpu/launch/mma_linear_plans.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"
#include "backend/gpu/supports.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kExpertThreads = 128;
constexpr uint32_t kSimds = kExpertThreads / kSimdLanes;
constexpr uint32_t kListThreads = 512;
// One group lists so few, and kListedSlotsFew of slots.
constexpr uint32_t kListedEntriesFew = 1 << kListedEntryBits;
// Threads that look at slots, at least.
constexpr uint32_t kListedThreads = 256;
// A thread a slot; and enough bytes on their way for the bus: 64 a thread.
constexpr uint32_t kFetchThreads = 256;
constexpr uint32_t kFetchGroupsPerCore = 2;
constexpr uint32_t kFetchSlotsMax = 64;
// Slots an expert below which a stage more pays: on an H200 5 to 9 % at 16, -1 to -3 % at 64.
constexpr uint32_t kFewSlots = 32;

// Slots of an expert that a group multiplies. Large tiles pay where experts fill them.
uint32_t mma_tile(const Platform& platform, const ExpertLaunch& launch) {
  const ExpertWeights& like = *launch.like;
  if (!is_ggml(like.gate) || !is_ggml(like.down)) return kMmaTokens;
  if (launch.slots <= kMmaTokens * launch.num_entries) return kMmaTokens;
  return std::min(ggml_tile(platform, ggml_place_words(mma_matrix(like.gate))),
                  ggml_tile(platform, ggml_place_words(mma_matrix(like.down))));
}

// Slots of an expert above which large tiles are better filled than left.
constexpr uint32_t kLargeTileSlots = 12;

bool takes_large_tile(const Platform& platform, const ExpertLaunch& launch,
                      const ops::ExpertFfn& op) {
  const ExpertWeights& like = *launch.like;
  const auto knows = [&](const Weight& weight, bool is_wide_matrix, const Tensor& x) {
    return is_wide_matrix &&
           large_tile_kernel(KernelId::expert_linear_f32_t16, weight, is_wide(x), platform);
  };
  return launch.slots >= kLargeTileSlots * launch.num_entries &&
         like.gate.format == like.up.format && knows(like.gate, launch.wide_gate, op.x) &&
         knows(like.up, launch.wide_up, op.x) &&
         knows(like.down, launch.wide_down, op.intermediate);
}

// Finds on the device which slots go to which entry. `few`: slots of a tile where experts have few,
// or 0.
bool list_slots(Recorder& recorder, ExpertLaunch& launch, const ops::ExpertFfn& op, uint32_t few) {
  launch.tile = launch.slots >= 6 * launch.num_entries ? 8 : 4;
  if (takes_large_tile(recorder.platform(), launch, op)) launch.tile = kLargeTileTokens;
  if (launch.uses_mma) launch.tile = few != 0 ? few : mma_tile(recorder.platform(), launch);
  // As many entries as can be have a slot each, and the other slots fill tiles.
  const uint32_t ones = std::min(launch.num_entries, launch.slots);
  launch.groups = ones + (launch.slots - ones) / launch.tile;
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
  if (launch.slots <= kListedSlotsFew && launch.num_entries <= kListedEntriesFew) {
    const uint32_t simds = groups_for(std::max(launch.num_entries, kListedThreads), kSimdLanes);
    const uint64_t words = round_up(2 * simds, 4) +
                           groups_for(launch.slots, 4 * kSimdLanes) * 4 * uint64_t{kListedWords};
    Plan both = make_plan(KernelId::expert_tiles_of_few, {1, 1, 1}, simds * kSimdLanes,
                          static_cast<uint32_t>(words * sizeof(u32)));
    both.set_params(p);
    both.bind(launch.ids);
    both.bind(launch.map);
    both.bind(launch.list);
    both.bind(launch.tiles);
    recorder.record(both);
    launch.list.access = launch.tiles.access = Access::kRead;
    return true;
  }
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

// Launches of experts of any format: a product each, of gate and up or of down.
struct AnyExperts {
  Recorder& recorder;
  const ExpertLaunch& launch;
  ExpertParams p{};

  void record(Plan plan, const Tensor& from, const Tensor& to) const {
    plan.set_params(p);
    plan.bind(launch.ids);
    plan.bind(launch.map);
    plan.bind(launch.entries);
    plan.bind(launch.list);
    plan.bind(launch.tiles);
    plan.bind(range_of(from, Access::kRead));
    plan.bind(range_of(to, Access::kWrite));
    recorder.record(plan);
  }
  /// A SIMD group has `rows_per_simd` rows of each matrix.
  void record_small(KernelId kernel, uint32_t rows_per_simd, const Tensor& from,
                    const Tensor& to) const {
    record(make_plan(kernel, {groups_for(p.gate.rows, kSimds * rows_per_simd), launch.groups, 1},
                     kExpertThreads,
                     p.stage_cols * launch.tile * static_cast<uint32_t>(sizeof(float))),
           from, to);
  }
  void record_large(KernelId first, const Weight& weight, uint32_t rows_per_simd,
                    const Tensor& from, const Tensor& to) const {
    const KernelId kernel = *large_tile_kernel(first, weight, true, recorder.platform());
    constexpr uint32_t kLargeSimds = uint32_t{kLargeTileThreads} / kSimdLanes;
    record(make_large_tile_plan(
               kernel, weight,
               {groups_for(p.gate.rows, kLargeSimds * rows_per_simd), launch.groups, 1}),
           from, to);
  }
  void set_x(const Tensor& from, const Tensor& to, const Tensor& bias) {
    p.x_stride = row_stride(from);
    p.out_stride = row_stride(to);
    p.wide = is_wide(from) ? 1 : 0;
    p.bias_format = bias.is_null() ? kFormatF32 : float_format(bias.dtype);
  }
};

void record_any_experts(Recorder& recorder, const ExpertLaunch& launch, const ops::ExpertFfn& t) {
  const ExpertWeights& like = *launch.like;
  AnyExperts experts{recorder, launch};
  ExpertParams& p = experts.p;
  p.gate = matrix_layout(like.gate);
  p.up = matrix_layout(like.up);
  p.gate.wide = launch.wide_gate ? 1 : 0;
  p.up.wide = launch.wide_up ? 1 : 0;
  p.slots = launch.slots;
  p.ids = launch.num_ids;
  p.top_k = launch.top_k;
  p.use_tiles = launch.use_tiles ? 1 : 0;
  p.stage_cols = stage_cols(like.gate.cols, launch.tile);
  p.activation = static_cast<u32>(t.glu.activation);
  p.alpha = t.glu.alpha;
  p.limit = t.glu.limit;
  p.up_offset = t.glu.up_offset;
  experts.set_x(t.x, t.intermediate, like.gate_bias);
  const bool one_token = launch.tile == 1;
  const bool is_large = launch.tile == uint32_t{kLargeTileTokens};
  if (is_large) {
    experts.record_large(KernelId::expert_gate_up_f32_t16, like.gate, kLargeTileRows / 2, t.x,
                         t.intermediate);
  } else {
    // Two formats in one product have a kernel of their own, which comes in tiles only.
    const KernelId fused =
        like.gate.format == like.up.format
            ? matrix_kernel(KernelId::expert_gate_up_f32_t1, like.gate.format, launch.tile)
            : any_format_kernel(KernelId::expert_gate_up_any_t1, launch.tile);
    experts.record_small(fused, one_token ? kGateUpRowsOfOneToken : kGateUpRowsOfTile, t.x,
                         t.intermediate);
  }
  p.gate = matrix_layout(like.down);
  p.gate.wide = launch.wide_down ? 1 : 0;
  p.top_k = 1;
  p.stage_cols = stage_cols(like.down.cols, launch.tile);
  experts.set_x(t.intermediate, t.slots, like.down_bias);
  if (is_large) {
    experts.record_large(KernelId::expert_linear_f32_t16, like.down, kLargeTileRows, t.intermediate,
                         t.slots);
  } else {
    experts.record_small(
        matrix_kernel(KernelId::expert_linear_f32_t1, like.down.format, launch.tile),
        one_token ? kRowsOfOneToken : kRowsOfTile, t.intermediate, t.slots);
  }
}

void record_mma_experts(Recorder& recorder, const ExpertLaunch& launch, const ops::ExpertFfn& t) {
  const ExpertWeights& like = *launch.like;
  MmaExpertParams p{};
  const bool has_few = launch.slots < kFewSlots * launch.num_entries;
  p.ids = launch.num_ids;
  p.activation = static_cast<u32>(t.glu.activation);
  p.alpha = t.glu.alpha;
  p.limit = t.glu.limit;
  p.up_offset = t.glu.up_offset;
  // One product after the other: gate and up, then down.
  const auto record_step = [&](bool is_down, const Tensor& from, const Tensor& to) {
    const Weight& weight = is_down ? like.down : like.gate;
    const Tensor& bias = is_down ? like.down_bias : like.gate_bias;
    p.matrix = mma_matrix(weight);
    p.walk.place_words = ggml_place_words(p.matrix);
    p.tile = launch.tile;
    p.stages = is_ggml(p.matrix)
                   ? ggml_stage_blocks(recorder.platform(), p.tile, p.walk.place_words)
               : has_few ? uint32_t{kMmaStagesOfFew}
                         : uint32_t{kMmaStages};
    p.matrix.wide = (is_down ? launch.wide_down : launch.wide_gate && launch.wide_up) ? 1 : 0;
    p.matrix.wide_scales = (is_down ? launch.wide_down_scales : launch.wide_scales) ? 1 : 0;
    p.x_stride = row_stride(from);
    p.out_stride = row_stride(to);
    p.cols = static_cast<u32>(weight.cols);
    p.wide = is_wide(from) ? 1 : 0;
    p.top_k = is_down ? 1 : launch.top_k;
    p.bias_format = bias.is_null() ? kFormatF32 : float_format(bias.dtype);
    const QuantizedRows* const rows = quantize_rows(recorder, from, is_ggml(p.matrix));
    if (rows == nullptr) return;
    const KernelId kernel = is_ggml(p.matrix)
                                ? (is_down ? KernelId::mma_down_ggml : KernelId::mma_gate_up_ggml)
                                : (is_down ? KernelId::mma_down : KernelId::mma_gate_up);
    Plan plan = make_mma_many_plan(
        kernel, {groups_for(p.matrix.rows, kMmaGroupRows / (is_down ? 1 : 2)), launch.groups, 1},
        p.tile, p.stages, p.walk.place_words);
    plan.set_params(p);
    plan.bind(launch.entries);
    plan.bind(launch.list);
    plan.bind(launch.tiles);
    plan.bind(rows->integers);
    plan.bind(rows->sums);
    plan.bind(range_of(to, Access::kWrite));
    recorder.record(plan);
  };
  record_step(false, t.x, t.intermediate);
  record_step(true, t.intermediate, t.slots);
}

// Completes a launch whose table is placed.
void set_slots(const Routes& routes, ExpertLaunch& launch) {
  launch.slots = static_cast<uint32_t>(routes.ids.num_elements());
  launch.top_k = static_cast<uint32_t>(routes.ids.dim(1));
  launch.ids = range_of(routes.ids, Access::kRead);
  launch.use_tiles = launch.slots > (launch.uses_mma ? kMmaDirectSlotsMax : kDirectSlotsMax);
  launch.groups = launch.slots;
  launch.tile = 1;
  launch.list = launch.tiles = {};
}

// True when plan_fetch() is to be recorded before: then experts are read where it leaves them.
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

// True when record_few_slots() has the launches of these experts, otherwise record_experts() has.
bool takes_few_slots(const ExpertLaunch& launch) {
  return launch.uses_mma && (!launch.use_tiles || !launch.takes_many);
}

void record_experts(GpuContext& gpu, ExpertLaunch& launch, const ops::ExpertFfn& op) {
  Recorder& recorder = gpu.recorder();
  FewSlots slots{launch, op};
  std::optional<TiledSlots> tiles;
  if (launch.use_tiles && launch.uses_mma) tiles = tile_slots(recorder.platform(), launch);
  Waiting& waiting = gpu.waiting();
  if (tiles && waiting.state() == State::kExperts && waiting.ffn &&
      may_compute(slots, *waiting.ffn)) {
    gpu.flush_routes();
    slots.ffn = *std::exchange(waiting.ffn, {});
    slots.has_ffn = true;
  }
  gpu.flush();
  if (launch.use_tiles && !list_slots(recorder, launch, op, tiles ? tiles->tile : 0)) return;
  if (tiles) {
    slots.launch = launch;
    record_tiled_slots(recorder, slots, *tiles);
  } else if (launch.uses_mma) {
    record_mma_experts(recorder, launch, op);
  } else {
    record_any_experts(recorder, launch, op);
  }
}

void launch_few_slots(GpuContext& gpu, const ExpertLaunch& launch, const ops::ExpertFfn& op) {
  Waiting& waiting = gpu.waiting();
  FewSlots slots{launch, op};
  if (waiting.state() != State::kExperts) gpu.flush();
  const std::optional<ops::Route> route = std::exchange(waiting.route, {});
  const std::optional<FfnOp> ffn = std::exchange(waiting.ffn, {});
  slots.chooses = route && may_choose(slots, *route, ffn.value_or(FfnOp{}));
  slots.has_ffn = ffn && may_compute(slots, *ffn);
  // Operations that are no part of the launches come before them.
  if (slots.chooses) {
    slots.route = *route;
  } else if (route) {
    gpu.recorder().record(plan_route(*route));
  }
  if (slots.has_ffn) {
    slots.ffn = *ffn;
  } else if (ffn) {
    record_ffn(gpu.recorder(), *ffn);
  }
  waiting.down = record_few_slots(gpu.recorder(), slots);
}

}  // namespace

Status supports(const Platform& /*platform*/, const ops::ExpertFfn& op) {
  // The others are like it but for where they lie, which their table is made by.
  return op.ready.empty() ? Status{} : check_expert(op.ready.front());
}

void run(GpuContext& gpu, const ops::ExpertFfn& op) {
  if (op.ready.empty() || op.routes.ids.num_elements() == 0) return;
  ExpertTables& tables = gpu.tables();
  ExpertLaunch launch;
  tables.begin(op.ready);
  while (tables.has_next()) {
    gpu.flush_tables();
    if (!tables.next(launch)) return;
    set_slots(op.routes, launch);
    if (fetches(launch)) {
      gpu.flush_routes();
      gpu.recorder().record(plan_fetch(gpu.recorder(), launch));
      launch.entries = launch.fetched;
    }
    if (takes_few_slots(launch)) {
      launch_few_slots(gpu, launch, op);
    } else {
      record_experts(gpu, launch, op);
    }
  }
}

}  // namespace moeflux::gpu
