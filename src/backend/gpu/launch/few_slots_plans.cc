// Two launches, which also choose the routes and compute the shared expert where they can.
#include "backend/gpu/launch/few_slots_plans.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "backend/gpu/launch/mma_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/ops/plans.h"

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

// Gate and up, or down: parameters and extents.
Plan plan_step(const Recorder& recorder, MmaExpertsOneParams& p, const FewSlots& s, bool is_down) {
  const GluWeights& shared = s.ffn.op.weights;
  const Weight& weight = s.launch.like != nullptr
                             ? (is_down ? s.launch.like->down : s.launch.like->gate)
                             : (is_down ? shared.down : shared.gate);
  MmaExpertParams& e = p.expert;
  e.matrix = mma_matrix(weight);
  e.cols = static_cast<u32>(weight.cols);
  e.wide = 1;
  e.bias_format = kFormatF32;
  bool wide = true;
  bool wide_scales = true;
  if (s.launch.like != nullptr) {
    const Tensor& from = is_down ? s.experts.intermediate : s.experts.x;
    const Tensor& bias = is_down ? s.launch.like->down_bias : s.launch.like->gate_bias;
    wide = is_down ? s.launch.wide_down : s.launch.wide_gate && s.launch.wide_up;
    wide_scales = is_down ? s.launch.wide_down_scales : s.launch.wide_scales;
    e.x_stride = row_stride(from);
    e.out_stride = row_stride(is_down ? s.experts.slots : s.experts.intermediate);
    e.wide = is_wide(from) ? 1 : 0;
    if (!bias.is_null()) e.bias_format = float_format(bias.dtype);
    p.first[0] = is_down ? s.launch.first.down : s.launch.first.gate;
    p.first[1] = s.launch.first.up;
  }
  e.matrix.wide = wide ? 1 : 0;
  e.matrix.wide_scales = wide_scales ? 1 : 0;
  if (s.has_ffn) add_network(recorder, s, is_down, p);
  const OneKernels& kernels = one_kernels(e.matrix.bits);
  KernelId kernel = is_down ? kernels.down : kernels.gate_up;
  const uint32_t tokens = s.has_ffn ? rows_of(s.ffn.op.x) : 0;
  MmaOneNeeds needs;
  needs.bits = e.matrix.bits;
  needs.grid_words = grid_words(e.matrix.bits);
  needs.cols = e.cols;
  needs.tiles = groups_for(e.matrix.rows, is_down ? kMmaRows : kMmaRows / 2);  // or half of both
  needs.rows = p.slots + tokens;
  needs.more = s.chooses ? uint32_t{kRouteWords} : 0;
  needs.knows_type = kernels.knows_type;
  std::optional<MmaOneLaunch> launch;
  uint32_t rows = needs.rows;
  if (e.matrix.bits != 8 && !is_down && s.launch.like != nullptr && s.has_ffn) {
    launch = mma_list_launch(needs, e.top_k + 1, recorder.platform().cores(),
                             recorder.platform().shared_bytes_max());
  }
  if (launch) {
    kernel = kernels.gate_up_list;
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

bool may_choose(const FewSlots& s, const ops::Route& route, const FfnOp& network) {
  const ops::GatedFfn& ffn = network.op;
  return are_same(route.out.ids, s.experts.routes.ids) &&
         are_same(route.out.weights, s.experts.routes.weights) &&
         are_apart({route.logits, route.options.correction_bias, route.options.expert_scale},
                   {s.experts.slots, s.experts.intermediate, ffn.out, network.intermediate}) &&
         are_apart({route.out.ids, route.out.weights},
                   {s.experts.x, ffn.x, ffn.out_gate, ffn.out, network.intermediate});
}

bool may_compute(const FewSlots& s, const FfnOp& network) {
  const ops::GatedFfn& ffn = network.op;
  // The second launch reads the gate and writes the network's result.
  return are_same(ffn.x, s.experts.x) && ffn.glu == s.experts.glu &&
         is_alike(ffn.weights.gate, s.launch.like->gate) &&
         is_alike(ffn.weights.up, s.launch.like->up) &&
         is_alike(ffn.weights.down, s.launch.like->down) &&
         are_apart({s.experts.slots, s.experts.intermediate, s.experts.routes.ids},
                   {ffn.out, network.intermediate, ffn.out_gate});
}

std::optional<DownOp> record_few_slots(Recorder& recorder, const FewSlots& s) {
  MmaExpertsOneParams p{};
  p.expert.ids = s.launch.num_ids;
  p.expert.top_k = s.launch.top_k;
  p.expert.activation = static_cast<u32>(s.experts.glu.activation);
  p.expert.alpha = s.experts.glu.alpha;
  p.expert.limit = s.experts.glu.limit;
  p.expert.up_offset = s.experts.glu.up_offset;
  p.stride = s.launch.stride;
  p.slots = s.launch.slots;
  p.has_shared_gate = s.ffn.op.out_gate.is_null() ? 0 : 1;
  const RouterOptions& router = s.route.options;
  if (s.chooses) p.route = route_params(s.route);
  const Binding map = p.stride == 0 ? s.launch.map : Binding{};
  const Binding entries = p.stride == 0 ? s.launch.entries : Binding{};
  const Binding ids = s.chooses ? range_of(s.route.out.ids, Access::kOverwrite) : s.launch.ids;
  Plan gate_up = plan_step(recorder, p, s, /*is_down=*/false);
  gate_up.bind(ids);
  gate_up.bind(range_of(s.route.out.weights, Access::kOverwrite));
  gate_up.bind(range_of(s.route.logits, Access::kRead));
  gate_up.bind(range_of(router.correction_bias, Access::kRead));
  gate_up.bind(range_of(router.expert_scale, Access::kRead));
  gate_up.bind(map);
  gate_up.bind(entries);
  gate_up.bind(range_of(s.experts.x, Access::kRead));
  gate_up.bind(range_of(s.experts.intermediate, Access::kWrite));
  gate_up.bind(range_of(s.ffn.intermediate, Access::kWrite));
  recorder.record(gate_up);
  Plan down = plan_step(recorder, p, s, /*is_down=*/true);
  down.bind(s.launch.ids);
  down.bind({});  // weights, written above
  down.bind(range_of(s.route.logits, Access::kRead));
  down.bind(range_of(router.correction_bias, Access::kRead));
  down.bind(map);
  down.bind(entries);
  down.bind(range_of(s.experts.intermediate, Access::kRead));
  down.bind(range_of(s.experts.slots, Access::kWrite));
  down.bind(range_of(s.ffn.intermediate, Access::kRead));
  down.bind(range_of(s.ffn.op.out_gate, Access::kRead));
  down.bind(range_of(s.ffn.op.out, Access::kWrite));
  std::optional<DownOp> waits = down_that_waits(down, p, s, recorder.platform());
  if (!waits) recorder.record(down);
  return waits;
}

void record_ffn(Recorder& recorder, const FfnOp& ffn) {
  FewSlots slots;
  slots.experts.x = ffn.op.x;
  slots.experts.glu = ffn.op.glu;
  slots.has_ffn = true;
  slots.ffn = ffn;
  (void)record_few_slots(recorder, slots);
}

}  // namespace moeflux::gpu
