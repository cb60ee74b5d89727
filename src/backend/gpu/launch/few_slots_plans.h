// Experts of few slots on matrix units as plans, and the network for every token beside them.
#pragma once

#include <optional>

#include "backend/gpu/launch/expert_launch.h"
#include "backend/gpu/launch/expert_tables.h"
#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/operations.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/ops/expert_ffn.h"
#include "backend/ops/route.h"

namespace moeflux::gpu {

/// The work of two launches for few slots: experts, a network for every token, or both.
struct FewSlots {
  ExpertLaunch launch;  // like none: the network alone
  ops::ExpertFfn experts;
  bool chooses = false;  // the routes too
  ops::Route route;
  bool has_ffn = false;
  FfnOp ffn;
};

/// True when both launches may choose the routes anew, which the first writes down; `network`: what
/// else they compute, null tensors if nothing.
bool may_choose(const FewSlots& slots, const ops::Route& route, const FfnOp& network);
/// True when they may compute the network besides.
bool may_compute(const FewSlots& slots, const FfnOp& ffn);
/// The down products, where they may wait for the sum of the slots; otherwise all is recorded.
std::optional<DownOp> record_few_slots(Recorder& recorder, const FewSlots& slots);
/// How slots of experts that have a few each are launched: in tiles of 4, 8 or 16.
struct TiledSlots {
  uint32_t tile = 8;
  MmaFewLaunch gate_up;
  MmaFewLaunch down;
  uint32_t token_words = 0;  // of the activations that down keeps
};
/// Nothing where experts have many slots, or kernels do not know the formats.
std::optional<TiledSlots> tile_slots(const Platform& platform, const ExpertLaunch& launch);
/// Gate and up, then down, of slots whose lists are there, and of a network that may be computed
/// besides.
void record_tiled_slots(Recorder& recorder, const FewSlots& slots, const TiledSlots& tiles);
/// Adds the network to the parameters of gate and up, or of down, which have what is wide of the
/// experts: what is wide of both, then.
template <class Params>
void add_network(const Recorder& recorder, const FewSlots& s, bool is_down, Params& p) {
  const GluWeights& shared = s.ffn.op.weights;
  const Weight& first = is_down ? shared.down : shared.gate;
  const Weight& second = is_down ? shared.down : shared.up;
  MmaExpertParams& e = p.expert;
  for (const Weight* own : {&first, &second}) {
    if (mma_matrix(*own).wide == 0) e.matrix.wide = 0;
    if (!has_wide_scales(*own)) e.matrix.wide_scales = 0;
  }
  p.shared[0] = expert_addresses(recorder, first, {});
  p.shared[1] = expert_addresses(recorder, second, {});
  const Tensor& from = is_down ? s.ffn.intermediate : s.ffn.op.x;
  p.shared_x_stride = row_stride(from);
  p.shared_out_stride = row_stride(is_down ? s.ffn.op.out : s.ffn.intermediate);
  if (!is_wide(from)) e.wide = 0;
}
/// The network alone.
void record_ffn(Recorder& recorder, const FfnOp& ffn);
std::optional<DownOp> down_that_waits(const Plan& down, const MmaExpertsOneParams& p,
                                      const FewSlots& slots, const Platform& platform);

}  // namespace moeflux::gpu
