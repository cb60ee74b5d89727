// The routed experts on matrix units as plans.
#include "backend/gpu/expert_launch.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

// Slots an expert below which a stage more pays: on an H200 5 to 9 % at 16, -1 to -3 % at 64.
constexpr uint32_t kFewSlots = 32;

}  // namespace

void record_mma_experts(Recorder& recorder, const ExpertLaunch& launch, const ExpertTensors& t) {
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
    p.walk.place_words = is_ggml(p.matrix) ? mma_place_words(p.matrix.bits) : 0;
    const bool fits = mma_many_ggml_bytes(kMmaStagesOfFew, p.walk.place_words) <=
                      recorder.platform().shared_bytes_max();
    p.stages = has_few && fits ? kMmaStagesOfFew : kMmaStages;
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
        p.stages, p.walk.place_words);
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

}  // namespace moeflux::gpu
