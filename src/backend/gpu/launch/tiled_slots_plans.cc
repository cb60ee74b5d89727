// Slots of experts that have a few each: two launches, with the shared expert where they can.
#include <algorithm>
#include <iterator>
#include <optional>

#include "backend/gpu/launch/few_slots_plans.h"
#include "backend/gpu/launch/mma_linear_plans.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

// Gate and up, and down.
struct StepKernels {
  KernelId gate_up;
  KernelId down;
};
// By their slots a tile.
struct TileKernels {
  StepKernels of4;
  StepKernels of8;
  StepKernels of16;
};
constexpr TileKernels kW4 = {{KernelId::mma_gate_up_w4_t4, KernelId::mma_down_w4_t4},
                             {KernelId::mma_gate_up_w4_t8, KernelId::mma_down_w4_t8},
                             {KernelId::mma_gate_up_w4_t16, KernelId::mma_down_w4_t16}};
constexpr TileKernels kGgml = {{KernelId::mma_gate_up_ggml_t4, KernelId::mma_down_ggml_t4},
                               {KernelId::mma_gate_up_ggml_t8, KernelId::mma_down_ggml_t8},
                               {KernelId::mma_gate_up_ggml_t16, KernelId::mma_down_ggml_t16}};

const KnownType* known_type(const MmaExpertsFewParams& p) {
  const KnownType* const type = p.expert.tile == 4 ? find_known(p.expert.matrix) : nullptr;
  if (type == nullptr || !type->wide) return type;
  const bool is_shared_wide =
      std::all_of(std::begin(p.shared), std::end(p.shared),
                  [](const ExpertMatrix& shared) { return shared.data % 16 == 0; });
  return is_shared_wide ? type : nullptr;
}

KernelId kernel_of(const MmaExpertsFewParams& p, bool is_down) {
  if (const KnownType* const type = known_type(p)) return is_down ? type->down4 : type->gate_up4;
  const TileKernels& all = is_ggml(p.expert.matrix) ? kGgml : kW4;
  const uint32_t tile = p.expert.tile;
  const StepKernels& kernels = tile == 4 ? all.of4 : tile == 8 ? all.of8 : all.of16;
  return is_down ? kernels.down : kernels.gate_up;
}

uint32_t order_of(const MmaExpertsFewParams& p) {
  if (const KnownType* const type = known_type(p)) return type->order;
  return is_ggml(p.expert.matrix) ? kRowsByLanesOfHalves : kRowsByLanes;
}

// Slots of a tile: as few as most experts have, or fewer where kernels of these know the types.
uint32_t slots_of_tile(const ExpertLaunch& launch) {
  const bool is_known = find_known(mma_matrix(launch.like->gate)) != nullptr &&
                        find_known(mma_matrix(launch.like->down)) != nullptr;
  const uint32_t of_four = is_known ? kMmaFewSlots4Known : kMmaFewSlots4;
  if (launch.slots <= of_four * launch.num_entries) return 4;
  return launch.slots <= kMmaFewSlots8 * launch.num_entries ? 8 : 16;
}

std::optional<MmaFewLaunch> launch_of(const Platform& platform, const Weight& weight, uint32_t tile,
                                      bool is_down) {
  const bool has_more = !is_ggml(weight) && is_down && tile > 8;
  return mma_slots_launch(mma_matrix(weight).bits, static_cast<uint32_t>(weight.cols), tile,
                          has_more ? uint32_t{kMmaSimds} : kMmaFewSimds,
                          platform.shared_bytes_max());
}

// Gate and up, or down.
struct Step {
  const Weight* weight;
  const Weight* second;  // up
  const Tensor* from;
  const Tensor* to;
  const Tensor* bias;
  bool wide;
  bool wide_scales;
};

MmaExpertsFewParams step_params(Recorder& recorder, const FewSlots& s, const TiledSlots& tiles,
                                const Step& step, const MmaFewLaunch& launch) {
  MmaExpertsFewParams p{};
  MmaExpertParams& e = p.expert;
  e.matrix = mma_matrix(*step.weight);
  e.x_stride = row_stride(*step.from);
  e.out_stride = row_stride(*step.to);
  e.cols = static_cast<u32>(step.weight->cols);
  e.walk = launch.walk;
  e.wide = is_wide(*step.from) ? 1 : 0;
  e.tile = tiles.tile;
  e.ids = s.launch.num_ids;
  e.top_k = s.launch.top_k;
  e.bias_format = step.bias->is_null() ? kFormatF32 : float_format(step.bias->dtype);
  e.activation = static_cast<u32>(s.experts.glu.activation);
  e.alpha = s.experts.glu.alpha;
  e.limit = s.experts.glu.limit;
  e.up_offset = s.experts.glu.up_offset;
  p.token_words = tiles.token_words;
  e.matrix.wide = step.wide ? 1 : 0;
  e.matrix.wide_scales = step.wide_scales ? 1 : 0;
  if (s.has_ffn) {
    add_network(recorder, s, /*is_down=*/step.second == nullptr, p);
    p.tokens = rows_of(s.ffn.op.x);
    p.shared_tiles = groups_for(p.tokens, tiles.tile);
    p.has_shared_gate = s.ffn.op.out_gate.is_null() ? 0 : 1;
  }
  return p;
}

Plan plan_of(const MmaExpertsFewParams& p, const FewSlots& s, const MmaFewLaunch& launch,
             bool is_down, uint32_t bytes) {
  const uint32_t rows = launch.rows / (is_down ? 1 : 2);
  Plan plan =
      make_plan(kernel_of(p, is_down),
                {groups_for(p.expert.matrix.rows, rows), p.shared_tiles + s.launch.groups, 1},
                launch.threads);
  plan.shared_bytes = bytes;
  plan.set_params(p);
  plan.bind(s.launch.entries);
  plan.bind(s.launch.list);
  plan.bind(s.launch.tiles);
  return plan;
}

}  // namespace

std::optional<TiledSlots> tile_slots(const Platform& platform, const ExpertLaunch& launch) {
  const ExpertWeights& like = *launch.like;
  const uint32_t most = is_ggml(like.gate) ? kMmaFewSlots16Ggml : kMmaFewSlots16;
  if (launch.slots > most * launch.num_entries) return std::nullopt;
  TiledSlots tiles;
  tiles.tile = slots_of_tile(launch);
  for (const Weight* weight : {&like.gate, &like.up, &like.down}) {
    if (mma_matrix(*weight).bits == 8) return std::nullopt;
  }
  if (mma_matrix(like.gate).bits != mma_matrix(like.up).bits) return std::nullopt;
  const std::optional<MmaFewLaunch> gate_up =
      launch_of(platform, like.gate, tiles.tile, /*is_down=*/false);
  const std::optional<MmaFewLaunch> down =
      launch_of(platform, like.down, tiles.tile, /*is_down=*/true);
  if (!gate_up || !down) return std::nullopt;
  tiles.gate_up = *gate_up;
  tiles.down = *down;
  if (is_ggml(like.down)) return tiles;
  // So that two tokens next to each other lie in different banks.
  const auto cols = static_cast<uint32_t>(like.down.cols);
  tiles.token_words = cols / 2 + static_cast<uint32_t>(round_up(cols / kMmaBlock * 2, 32)) + 16;
  tiles.down.walk.more = tiles.down.bytes / static_cast<uint32_t>(sizeof(u32));
  tiles.down.bytes += tiles.tile * tiles.token_words * static_cast<uint32_t>(sizeof(u32));
  if (tiles.down.bytes > platform.shared_bytes_max()) return std::nullopt;
  return tiles;
}

void record_tiled_slots(Recorder& recorder, const FewSlots& s, const TiledSlots& tiles) {
  const ExpertWeights& like = *s.launch.like;
  const Step first = {&like.gate,          &like.up,
                      &s.experts.x,        &s.experts.intermediate,
                      &like.gate_bias,     s.launch.wide_gate && s.launch.wide_up,
                      s.launch.wide_scales};
  const MmaExpertsFewParams p = step_params(recorder, s, tiles, first, tiles.gate_up);
  const QuantizedRows* const rows = quantize_rows(recorder, s.experts.x, order_of(p));
  if (rows == nullptr) return;
  Plan gate_up = plan_of(p, s, tiles.gate_up, /*is_down=*/false, tiles.gate_up.bytes);
  gate_up.bind(rows->integers);
  gate_up.bind(rows->sums);
  gate_up.bind(range_of(s.experts.intermediate, Access::kWrite));
  gate_up.bind(range_of(s.ffn.intermediate, Access::kWrite));
  recorder.record(gate_up);
  const Step last = {&like.down,
                     nullptr,
                     &s.experts.intermediate,
                     &s.experts.slots,
                     &like.down_bias,
                     s.launch.wide_down,
                     s.launch.wide_down_scales};
  const MmaExpertsFewParams q = step_params(recorder, s, tiles, last, tiles.down);
  Plan down = plan_of(q, s, tiles.down, /*is_down=*/true, tiles.down.bytes);
  const auto bind_rows = [&](const Tensor& x) {
    if (!is_ggml(q.expert.matrix) || x.is_null()) {
      down.bind(range_of(x, Access::kRead));
      if (is_ggml(q.expert.matrix)) down.bind({});
      return true;
    }
    const QuantizedRows* const own = quantize_rows(recorder, x, order_of(q));
    if (own == nullptr) return false;
    down.bind(own->integers);
    down.bind(own->sums);
    return true;
  };
  if (!bind_rows(s.experts.intermediate)) return;
  down.bind(range_of(s.experts.slots, Access::kWrite));
  if (!bind_rows(s.ffn.intermediate)) return;
  down.bind(range_of(s.ffn.op.out_gate, Access::kRead));
  down.bind(range_of(s.ffn.op.out, Access::kWrite));
  recorder.record(down);
}

}  // namespace moeflux::gpu
