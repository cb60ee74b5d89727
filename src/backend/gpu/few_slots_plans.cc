// Experts of few slots on matrix units as plans: two launches, which also choose the routes and
// compute the shared expert where they can.
#include <algorithm>
#include <initializer_list>
#include <optional>

#include "backend/gpu/expert_tables.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"
#include "backend/gpu/planners.h"

namespace moeflux::gpu {
namespace {

bool is_alike(const Weight& a, const Weight& b) {
  return a.format == b.format && a.rows == b.rows && a.cols == b.cols;
}

bool are_apart(std::initializer_list<Tensor> some, std::initializer_list<Tensor> others) {
  return std::all_of(some.begin(), some.end(), [&](const Tensor& a) {
    return std::none_of(others.begin(), others.end(),
                        [&](const Tensor& b) { return have_overlap(a, b); });
  });
}

KernelId kernel_of_few(const MmaMatrix& matrix, bool is_down) {
  if (is_ggml(matrix)) return is_down ? KernelId::mma_down_ggml_t1 : KernelId::mma_gate_up_ggml_t1;
  if (matrix.bits == 4) return is_down ? KernelId::mma_down_w4_t1 : KernelId::mma_gate_up_w4_t1;
  return is_down ? KernelId::mma_down_w8_t1 : KernelId::mma_gate_up_w8_t1;
}

// Gate and up, or down: parameters and extents.
Plan plan_step(const Recorder& recorder, MmaExpertsOneParams& p, const FewSlots& s, bool is_down) {
  const GluWeights& shared = s.ffn.weights;
  const Weight& weight = s.like != nullptr ? (is_down ? s.like->down : s.like->gate)
                                           : (is_down ? shared.down : shared.gate);
  MmaExpertParams& e = p.expert;
  e.matrix = mma_matrix(weight);
  e.cols = static_cast<u32>(weight.cols);
  e.wide = 1;
  e.bias_format = kFormatF32;
  bool wide = true;
  bool wide_scales = true;
  if (s.like != nullptr) {
    const Tensor& from = is_down ? s.tensors.intermediate : s.tensors.x;
    const Tensor& bias = is_down ? s.like->down_bias : s.like->gate_bias;
    wide = is_down ? s.launch.wide_down : s.launch.wide_gate && s.launch.wide_up;
    wide_scales = is_down ? s.launch.wide_down_scales : s.launch.wide_scales;
    e.x_stride = row_stride(from);
    e.out_stride = row_stride(is_down ? s.tensors.slots : s.tensors.intermediate);
    e.wide = is_wide(from) ? 1 : 0;
    if (!bias.is_null()) e.bias_format = float_format(bias.dtype);
    p.first[0] = is_down ? s.launch.first.down : s.launch.first.gate;
    p.first[1] = s.launch.first.up;
  }
  if (s.has_ffn) {
    const Tensor& from = is_down ? s.ffn.intermediate : s.ffn.x;
    const Weight& first = is_down ? shared.down : shared.gate;
    const Weight& second = is_down ? shared.down : shared.up;
    for (const Weight* own : {&first, &second}) {
      wide = wide && mma_matrix(*own).wide != 0;
      wide_scales = wide_scales && has_wide_scales(*own);
    }
    p.shared[0] = expert_addresses(recorder, first, {});
    p.shared[1] = expert_addresses(recorder, second, {});
    p.shared_x_stride = row_stride(from);
    p.shared_out_stride = row_stride(is_down ? s.ffn.out : s.ffn.intermediate);
    if (!is_wide(from)) e.wide = 0;
  }
  e.matrix.wide = wide ? 1 : 0;
  e.matrix.wide_scales = wide_scales ? 1 : 0;
  KernelId kernel = kernel_of_few(e.matrix, is_down);
  const uint32_t tokens = s.has_ffn ? rows_of(s.ffn.x) : 0;
  MmaOneNeeds needs;
  needs.bits = e.matrix.bits;
  needs.cols = e.cols;
  needs.tiles = groups_for(e.matrix.rows, is_down ? kMmaRows : kMmaRows / 2);  // or half of both
  needs.rows = p.slots + tokens;
  needs.more = s.chooses ? uint32_t{kRouteWords} : 0;
  std::optional<MmaOneLaunch> launch;
  uint32_t rows = needs.rows;
  if (e.matrix.bits != 8 && !is_down && s.like != nullptr && s.has_ffn) {
    launch = mma_list_launch(needs, e.top_k + 1, recorder.platform().cores(),
                             recorder.platform().shared_bytes_max());
  }
  if (launch) {
    kernel =
        is_ggml(e.matrix) ? KernelId::mma_gate_up_list_ggml_t1 : KernelId::mma_gate_up_list_w4_t1;
    rows = tokens;
    p.list = launch->list;
  } else {
    launch =
        mma_one_launch(needs, recorder.platform().cores(), recorder.platform().shared_bytes_max());
  }
  e.walk = launch->walk;
  Plan plan = make_plan(kernel, {launch->groups, rows, 1}, launch->threads);
  plan.shared_bytes = launch->bytes;
  plan.set_params(p);
  return plan;
}

}  // namespace

bool may_choose(const FewSlots& s, const RouteOp& route, const FfnOp& network) {
  return are_same(route.routes.ids, s.launch.routes.ids) &&
         are_same(route.routes.weights, s.launch.routes.weights) &&
         are_apart({route.logits, route.correction_bias, route.expert_scale},
                   {s.tensors.slots, s.tensors.intermediate, network.out, network.intermediate}) &&
         are_apart({route.routes.ids, route.routes.weights},
                   {s.tensors.x, network.x, network.out_gate, network.out, network.intermediate});
}

bool may_compute(const FewSlots& s, const FfnOp& ffn) {
  // The second launch reads the gate and writes the network's result.
  return are_same(ffn.x, s.tensors.x) && ffn.glu == s.tensors.glu &&
         is_alike(ffn.weights.gate, s.like->gate) && is_alike(ffn.weights.up, s.like->up) &&
         is_alike(ffn.weights.down, s.like->down) &&
         are_apart({s.tensors.slots, s.tensors.intermediate, s.launch.routes.ids},
                   {ffn.out, ffn.intermediate, ffn.out_gate});
}

std::optional<DownOp> record_few_slots(Recorder& recorder, const FewSlots& s) {
  MmaExpertsOneParams p{};
  p.expert.ids = s.launch.num_ids;
  p.expert.top_k = s.launch.top_k;
  p.expert.activation = static_cast<u32>(s.tensors.glu.activation);
  p.expert.alpha = s.tensors.glu.alpha;
  p.expert.limit = s.tensors.glu.limit;
  p.expert.up_offset = s.tensors.glu.up_offset;
  p.stride = s.launch.stride;
  p.slots = s.launch.slots;
  p.has_shared_gate = s.ffn.out_gate.is_null() ? 0 : 1;
  if (s.chooses) p.route = s.route.params;
  const Binding map = p.stride == 0 ? s.launch.map : Binding{};
  const Binding entries = p.stride == 0 ? s.launch.entries : Binding{};
  const Binding ids = s.chooses ? range_of(s.route.routes.ids, Access::kOverwrite) : s.launch.ids;
  Plan gate_up = plan_step(recorder, p, s, /*is_down=*/false);
  gate_up.bind(ids);
  gate_up.bind(range_of(s.route.routes.weights, Access::kOverwrite));
  gate_up.bind(range_of(s.route.logits, Access::kRead));
  gate_up.bind(range_of(s.route.correction_bias, Access::kRead));
  gate_up.bind(range_of(s.route.expert_scale, Access::kRead));
  gate_up.bind(map);
  gate_up.bind(entries);
  gate_up.bind(range_of(s.tensors.x, Access::kRead));
  gate_up.bind(range_of(s.tensors.intermediate, Access::kWrite));
  gate_up.bind(range_of(s.ffn.intermediate, Access::kWrite));
  recorder.record(gate_up);
  Plan down = plan_step(recorder, p, s, /*is_down=*/true);
  down.bind(s.launch.ids);
  down.bind({});  // weights, written above
  down.bind(range_of(s.route.logits, Access::kRead));
  down.bind(range_of(s.route.correction_bias, Access::kRead));
  down.bind(map);
  down.bind(entries);
  down.bind(range_of(s.tensors.intermediate, Access::kRead));
  down.bind(range_of(s.tensors.slots, Access::kWrite));
  down.bind(range_of(s.ffn.intermediate, Access::kRead));
  down.bind(range_of(s.ffn.out_gate, Access::kRead));
  down.bind(range_of(s.ffn.out, Access::kWrite));
  std::optional<DownOp> waits = down_that_waits(down, p, s, recorder.platform());
  if (!waits) recorder.record(down);
  return waits;
}

void record_ffn(Recorder& recorder, const FfnOp& ffn) {
  FewSlots slots;
  slots.tensors.x = ffn.x;
  slots.tensors.glu = ffn.glu;
  slots.has_ffn = true;
  slots.ffn = ffn;
  (void)record_few_slots(recorder, slots);
}

}  // namespace moeflux::gpu
