// Experts of few slots on matrix units as plans: two launches, which also choose the routes and
// compute the shared expert where they can.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "backend/gpu/expert_launch.h"
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"

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

}  // namespace

void GpuEncoder::gated_ffn(Tensor out, Tensor x, const GluWeights& weights, Tensor out_gate,
                           const GluOptions& options) {
  if (!status_.ok()) return;
  if (!waiting_.is_empty() || waiting_ffn_ || waiting_down_ || waiting_attention_) flush_waiting();
  const bool fits = rows_of(x) > 0 && rows_of(x) <= kSingleTokensMax && x.is_contiguous() &&
                    out.is_contiguous() && uses_mma(weights.gate) && uses_mma(weights.up) &&
                    uses_mma(weights.down) && weights.gate.format == weights.up.format &&
                    !have_overlap(out, x);
  if (!fits) return Encoder::gated_ffn(out, x, weights, out_gate, options);
  if (!supports("gated_ffn", weights.gate) || !supports("gated_ffn", weights.up) ||
      !supports("gated_ffn", weights.down)) {
    return;
  }
  ScratchScope scope(*this);  // whatever takes its place runs after what waits
  const Tensor intermediate = scratch({x.dim(0), weights.gate.rows}, DType::kF32);
  waiting_ffn_ = WaitingFfn{out, x, out_gate, intermediate, weights, options};
}

void GpuEncoder::flush_experts() {
  if (!waiting_route_ && !waiting_ffn_) return;
  const std::optional<WaitingRoute> route = std::exchange(waiting_route_, {});
  const std::optional<WaitingFfn> ffn = std::exchange(waiting_ffn_, {});
  if (route) record_route(*route);
  if (ffn) launch_ffn(*ffn);
}

void GpuEncoder::launch_ffn(const WaitingFfn& ffn) {
  FewSlots s;
  s.x = ffn.x;
  s.glu = ffn.glu;
  s.has_ffn = true;
  s.ffn = ffn;
  launch(s);
}

void GpuEncoder::launch_few_slots(const ExpertWeights& like, const ExpertLaunch& experts,
                                  const Tensor& slots, const Tensor& intermediate, const Tensor& x,
                                  const GluOptions& glu) {
  const std::optional<WaitingRoute> route = std::exchange(waiting_route_, {});
  const std::optional<WaitingFfn> ffn = std::exchange(waiting_ffn_, {});
  FewSlots s{&like, experts, slots, intermediate, x, glu};
  const WaitingFfn network = ffn.value_or(WaitingFfn{});
  // Both launches choose the routes anew, the first writes them down.
  s.chooses = route && are_same(route->routes.ids, experts.routes.ids) &&
              are_same(route->routes.weights, experts.routes.weights) &&
              are_apart({route->logits, route->correction_bias, route->expert_scale},
                        {slots, intermediate, network.out, network.intermediate}) &&
              are_apart({route->routes.ids, route->routes.weights},
                        {x, network.x, network.out_gate, network.out, network.intermediate});
  if (s.chooses) s.route = *route;
  if (route && !s.chooses) record_route(*route);
  // The second launch reads the gate and writes the network's result.
  s.has_ffn = ffn && are_same(ffn->x, x) && ffn->glu == glu &&
              is_alike(ffn->weights.gate, like.gate) && is_alike(ffn->weights.up, like.up) &&
              is_alike(ffn->weights.down, like.down) &&
              are_apart({slots, intermediate, experts.routes.ids},
                        {ffn->out, ffn->intermediate, ffn->out_gate});
  if (s.has_ffn) s.ffn = *ffn;
  if (ffn && !s.has_ffn) launch_ffn(*ffn);
  launch(s);
}

// Gate and up, or down: parameters and extents.
Plan GpuEncoder::plan_step(MmaExpertsOneParams& p, const FewSlots& s, bool is_down) const {
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
    const Tensor& from = is_down ? s.intermediate : s.x;
    const Tensor& bias = is_down ? s.like->down_bias : s.like->gate_bias;
    wide = is_down ? s.launch.wide_down : s.launch.wide_gate && s.launch.wide_up;
    wide_scales = is_down ? s.launch.wide_down_scales : s.launch.wide_scales;
    e.x_stride = row_stride(from);
    e.out_stride = row_stride(is_down ? s.slots : s.intermediate);
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
    p.shared[0] = addresses_of(first, {});
    p.shared[1] = addresses_of(second, {});
    p.shared_x_stride = row_stride(from);
    p.shared_out_stride = row_stride(is_down ? s.ffn.out : s.ffn.intermediate);
    if (!is_wide(from)) e.wide = 0;
  }
  e.matrix.wide = wide ? 1 : 0;
  e.matrix.wide_scales = wide_scales ? 1 : 0;
  const bool is_narrow = e.matrix.bits == 4;
  KernelId kernel = is_down
                        ? (is_narrow ? KernelId::mma_down_w4_t1 : KernelId::mma_down_w8_t1)
                        : (is_narrow ? KernelId::mma_gate_up_w4_t1 : KernelId::mma_gate_up_w8_t1);
  const uint32_t tokens = s.has_ffn ? rows_of(s.ffn.x) : 0;
  MmaOneNeeds needs;
  needs.bits = e.matrix.bits;
  needs.cols = e.cols;
  needs.tiles = groups_for(e.matrix.rows, is_down ? kMmaRows : kMmaRows / 2);  // or half of both
  needs.rows = p.slots + tokens;
  needs.more = s.chooses ? uint32_t{kRouteWords} : 0;
  std::optional<MmaOneLaunch> launch;
  uint32_t rows = needs.rows;
  if (is_narrow && !is_down && s.like != nullptr && s.has_ffn) {
    launch = mma_list_launch(needs, e.top_k + 1, platform_.cores(), platform_.shared_bytes_max());
  }
  if (launch) {
    kernel = KernelId::mma_gate_up_list_w4_t1;
    rows = tokens;
    p.list = launch->list;
  } else {
    launch = mma_one_launch(needs, platform_.cores(), platform_.shared_bytes_max());
  }
  e.walk = launch->walk;
  Plan plan = make_plan(kernel, {launch->groups, rows, 1}, launch->threads);
  plan.shared_bytes = launch->bytes;
  plan.set_params(p);
  return plan;
}

void GpuEncoder::launch(const FewSlots& s) {
  MmaExpertsOneParams p{};
  p.expert.ids = s.launch.num_ids;
  p.expert.top_k = s.launch.top_k;
  p.expert.activation = static_cast<u32>(s.glu.activation);
  p.expert.alpha = s.glu.alpha;
  p.expert.limit = s.glu.limit;
  p.expert.up_offset = s.glu.up_offset;
  p.stride = s.launch.stride;
  p.slots = s.launch.slots;
  p.has_shared_gate = s.ffn.out_gate.is_null() ? 0 : 1;
  if (s.chooses) p.route = s.route.params;
  const Binding map = p.stride == 0 ? s.launch.map : Binding{};
  const Binding entries = p.stride == 0 ? s.launch.entries : Binding{};
  const Binding ids = s.chooses ? range_of(s.route.routes.ids, Access::kOverwrite) : s.launch.ids;
  Plan gate_up = plan_step(p, s, /*is_down=*/false);
  gate_up.bind(ids);
  gate_up.bind(range_of(s.route.routes.weights, Access::kOverwrite));
  gate_up.bind(range_of(s.route.logits, Access::kRead));
  gate_up.bind(range_of(s.route.correction_bias, Access::kRead));
  gate_up.bind(range_of(s.route.expert_scale, Access::kRead));
  gate_up.bind(map);
  gate_up.bind(entries);
  gate_up.bind(range_of(s.x, Access::kRead));
  gate_up.bind(range_of(s.intermediate, Access::kWrite));
  gate_up.bind(range_of(s.ffn.intermediate, Access::kWrite));
  record(gate_up);
  Plan down = plan_step(p, s, /*is_down=*/true);
  down.bind(s.launch.ids);
  down.bind({});  // weights, written above
  down.bind(range_of(s.route.logits, Access::kRead));
  down.bind(range_of(s.route.correction_bias, Access::kRead));
  down.bind(map);
  down.bind(entries);
  down.bind(range_of(s.intermediate, Access::kRead));
  down.bind(range_of(s.slots, Access::kWrite));
  down.bind(range_of(s.ffn.intermediate, Access::kRead));
  down.bind(range_of(s.ffn.out_gate, Access::kRead));
  down.bind(range_of(s.ffn.out, Access::kWrite));
  record_or_keep(down, p, s);
}

}  // namespace moeflux::gpu
