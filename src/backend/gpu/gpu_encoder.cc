#include "backend/gpu/gpu_encoder.h"

#include <algorithm>
#include <utility>

#include "backend/gpu/mma_plans.h"
#include "backend/gpu/plan_building.h"
#include "backend/sequence_rows.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

constexpr int64_t kExpertsMax = 1024;  // a bit each in 32 lanes of 32 bits
constexpr int64_t kDeltaKeyDimMax = 256;
constexpr int64_t kRowDeltaKeyDimMax = 128;  // of keys whose rows decay by themselves, of scans

}  // namespace

GpuEncoder::GpuEncoder(Platform& platform, std::unique_ptr<Executor> executor,
                       std::unique_ptr<Buffer> scratch)
    : recorder_(platform, std::move(executor), std::move(scratch)), tables_(recorder_) {}

GpuEncoder::~GpuEncoder() { recorder_.finish(); }

// --- Memory and submission ---

Tensor GpuEncoder::scratch(const Shape& shape, DType dtype) {
  return recorder_.scratch(shape, dtype);
}

void GpuEncoder::keep_alive(std::unique_ptr<Retained> resource) {
  recorder_.keep_alive(std::move(resource));
}

void GpuEncoder::write(Tensor to, std::span<const std::byte> from) {
  flush();
  recorder_.write(to, from);
}

Status GpuEncoder::read(std::span<std::byte> to, Tensor from) {
  flush();
  return recorder_.read(to, from);
}

EventId GpuEncoder::submit() {
  flush();
  return recorder_.submit();
}

Status GpuEncoder::wait(EventId event) { return recorder_.wait(event); }

CopyId GpuEncoder::copy_beside(std::span<const BufferCopy> copies, EventId after) {
  return recorder_.copy_beside(copies, after);
}

void GpuEncoder::await_copies(CopyId last) {
  flush();
  recorder_.await_copies(last);
}

bool GpuEncoder::has_copied(CopyId last) { return recorder_.has_copied(last); }

// --- Waiting operations ---

template <class Op>
Action GpuEncoder::fuse(const Op& op) {
  const Action action = action_of(waiting_, op, recorder_.platform().has_matrix_units());
  if (action == Action::kLaunch || action == Action::kWait) flush();
  if constexpr (requires { gpu::add(waiting_, op); }) {
    if (action != Action::kLaunch) gpu::add(waiting_, op);
  }
  return action;
}

void GpuEncoder::flush() {
  const Waiting& w = waiting_;
  switch (w.state()) {
    case State::kNothing:
      return;
    case State::kSums:
    case State::kNorm:
      record_chain(recorder_, w.chain, w.chain.after_down ? &*w.down : nullptr);
      break;
    case State::kProducts:
      record_products(recorder_, w);
      break;
    case State::kDelta:
    case State::kDeltaNorm:
      recorder_.record(plan_delta_one(recorder_, w.delta, {}, Activation::kSilu),
                       writes_of(w.delta.op.states));
      break;
    case State::kHeads:
      record_heads(recorder_, w.heads);
      break;
    case State::kAttention:
      recorder_.record(w.attention->plan);
      break;
    case State::kExperts:
      if (w.route) recorder_.record(plan_route(*w.route));
      if (w.ffn) record_ffn(recorder_, *w.ffn);
      break;
    case State::kDown:
      recorder_.record(w.down->plan);
      break;
  }
  waiting_.clear();
}

void GpuEncoder::flush_routes() {
  if (waiting_.state() != State::kExperts) {
    flush();
  } else if (waiting_.route) {
    recorder_.record(plan_route(*waiting_.route));
    waiting_.route.reset();
  }
}

void GpuEncoder::flush_tables() {
  if (waiting_.down || !waiting_.delta.op.states.is_null()) flush();
}

void GpuEncoder::record(const Plan& plan) {
  flush();
  recorder_.record(plan);
}

bool GpuEncoder::supports(const char* op, const Weight& weight) {
  if (!recorder_.ok()) return false;
  const Status supported = check_weight(op, weight);
  return supported.ok() || recorder_.fail(supported.error());
}

// --- Rows ---

void GpuEncoder::copy(Tensor out, Tensor x) {
  MF_CHECK(out.shape == x.shape);
  record(plan_copy(out, x));
}

void GpuEncoder::add(Tensor out, Tensor a, Tensor b) {
  MF_CHECK(out.shape == a.shape && out.shape == b.shape);
  const AddOp op{out, a, b};
  if (fuse(op) == Action::kLaunch) record(plan_add(op));
}

void GpuEncoder::scale(Tensor out, Tensor x, float factor) {
  MF_CHECK(out.shape == x.shape);
  record(plan_scale(out, x, factor));
}

void GpuEncoder::soft_cap(Tensor x, float cap) { record(plan_soft_cap(x, cap)); }

void GpuEncoder::add_bias(Tensor x, Tensor bias) {
  MF_CHECK(bias.num_elements() == x.shape.back() && bias.dtype == DType::kF32);
  record(plan_add_bias(x, bias));
}

void GpuEncoder::mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) {
  MF_CHECK(out.shape == x.shape && rows_of(gate) == rows_of(x));
  MF_CHECK(gate.shape.back() == x.shape.back() || gate.shape.back() == 1);
  const GateOp op{out, x, gate, activation};
  if (fuse(op) == Action::kLaunch) return record(plan_gate(op));
  if (waiting_.attention) {
    recorder_.record(plan_gated(*waiting_.attention, gate));
  } else if (!waiting_.products.empty()) {
    gpu::add_to_product(waiting_, op);
    record_products(recorder_, waiting_);
  } else if (waiting_.heads.empty()) {
    recorder_.record(plan_delta_one(recorder_, waiting_.delta, gate, activation),
                     writes_of(waiting_.delta.op.states));
  } else {
    recorder_.record(plan_norm(waiting_.heads[0].norm, gate, activation));
  }
  waiting_.clear();
}

void GpuEncoder::glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) {
  MF_CHECK(out.shape == gate.shape && out.shape == up.shape);
  record(plan_glu(out, gate, up, options));
}

void GpuEncoder::rms_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  MF_CHECK(out.shape == x.shape);
  MF_CHECK(weight.is_null() || (weight.shape.back() == x.shape.back() && weight.is_contiguous() &&
                                weight.dtype == DType::kF32));
  const NormOp op{out, x, weight, eps};
  if (!weight.is_null() && rows_of(weight) > 1) return record(plan_norm(op, {}, {}));
  if (fuse(op) == Action::kLaunch) record(plan_norm(op, {}, {}));
}

void GpuEncoder::layer_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  MF_CHECK(out.shape == x.shape && weight.num_elements() == x.shape.back() &&
           weight.dtype == DType::kF32);
  record(plan_layer_norm({out, x, weight, eps}));
}

void GpuEncoder::top_rows(Tensor values, Tensor ids, Tensor x) {
  if (!recorder_.ok()) return;
  MF_CHECK(values.shape == ids.shape && values.is_contiguous() && ids.is_contiguous() &&
           rows_of(values) == rows_of(x) &&
           values.shape.back() <= std::min(kTopRowsMax, x.shape.back()));
  flush();
  record_top_rows(recorder_, values, ids, x);
}

// --- Residuals of several streams ---

void GpuEncoder::read_streams(Tensor out, const StreamGates& gates, Tensor x, Tensor logits,
                              const StreamGateOptions& options) {
  const int64_t streams = x.dim(1);
  const bool reads_alone = gates.write.is_null();
  MF_CHECK(logits.is_contiguous() &&
           logits.shape.back() == (reads_alone ? 1 : 2 + streams) * streams &&
           options.base.num_elements() == logits.shape.back() &&
           options.scale.num_elements() == (reads_alone ? 1 : 3) && streams <= kStreamsMax &&
           x.is_contiguous() && out.is_contiguous() && rows_of(out) == x.dim(0) &&
           out.shape.back() == x.shape.back() && gates.write.is_contiguous() &&
           gates.mix.is_contiguous());
  record(plan_read_streams({out, gates, x, logits, options}));
}

void GpuEncoder::expand_streams(Tensor out, Tensor x, Tensor branch, const StreamGates& gates) {
  MF_CHECK(out.shape == x.shape && out.is_contiguous() && x.is_contiguous() &&
           rows_of(branch) == x.dim(0) && branch.shape.back() == x.shape.back() &&
           x.dim(1) <= kStreamsMax && !have_overlap(out, x));
  record(plan_expand_streams({out, x, branch, gates}));
}

void GpuEncoder::sum_gated(Tensor out, Tensor x, Tensor gates) {
  MF_CHECK(x.shape == gates.shape && x.is_contiguous() && gates.is_contiguous() &&
           out.is_contiguous() && rows_of(out) == x.dim(0) && out.shape.back() == x.shape.back());
  record(plan_sum_gated(out, x, gates));
}

void GpuEncoder::root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions& options) {
  MF_CHECK(a.shape == b.shape && a.is_contiguous() && b.is_contiguous() && out.is_contiguous() &&
           out.num_elements() == rows_of(a));
  record(plan_root_dots(out, a, b, options));
}

// --- Products ---

void GpuEncoder::embed(Tensor out, const Weight& table, Tensor token_ids) {
  if (!supports("embed", table)) return;
  MF_CHECK(rows_of(out) == token_ids.num_elements() && out.shape.back() == table.cols &&
           token_ids.dtype == DType::kI32);
  record(plan_embed(out, table, token_ids));
}

void GpuEncoder::linear(Tensor out, Tensor x, const Weight& weight) {
  if (!supports("linear", weight)) return;
  MF_CHECK(rows_of(out) == rows_of(x) && out.shape.back() == weight.rows &&
           x.shape.back() == weight.cols && out.is_contiguous() && x.is_contiguous());
  const Platform& platform = recorder_.platform();
  if (uses_mma(platform, weight)) {
    if (rows_of(x) > 0) (void)fuse(ProductOp{out, x, weight});
    return;
  }
  if (rows_of(x) != 1) return record(plan_linear(out, x, weight));
  const FewRowsOp op{out, x};
  const bool makes = action_of(waiting_, op, platform.has_matrix_units()) == Action::kFinish;
  const std::optional<Plan> few =
      plan_few_rows(op, weight, makes ? &waiting_.chain : nullptr, platform);
  if (few && makes) waiting_.clear();
  record(few ? *few : plan_linear(out, x, weight));
}

void GpuEncoder::head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) {
  if (!supports("head_linear", weight)) return;
  MF_CHECK(out.shape.back() == rows.rows_per_head && x.shape.back() == weight.cols &&
           out.dim(0) == x.dim(0) && out.dim(1) == x.dim(1));
  record(plan_head_linear(out, x, weight, rows));
}

void GpuEncoder::head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                                        const HeadRows& rows) {
  if (!supports("head_linear_transposed", weight)) return;
  MF_CHECK(x.shape.back() == rows.rows_per_head && out.shape.back() == weight.cols &&
           out.dim(0) == x.dim(0) && out.dim(1) == x.dim(1));
  record(plan_head_linear_transposed(out, x, weight, rows));
}

// --- Sequences ---

void GpuEncoder::rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                      const RopeOptions& options) {
  MF_CHECK(x.shape.rank() == 3 && options.rotary_dim <= x.dim(2) &&
           inverse_frequencies.num_elements() == options.rotary_dim / 2 &&
           positions.num_elements() == x.dim(0) && positions.dtype == DType::kI32);
  if (options.rotary_dim < 2) return;
  const RopeOp op{x, positions, inverse_frequencies, options};
  if (fuse(op) == Action::kLaunch) record(plan_rope(op));
}

void GpuEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                             std::span<const StateRows> sequences) {
  const int64_t channels = out.shape.back();
  MF_CHECK(x.shape == out.shape && weight.dim(0) == channels && weight.is_contiguous() &&
           (options.bias.is_null() || options.bias.num_elements() == channels));
  for (const StateRows& s : sequences) {
    MF_CHECK(s.state.dim(0) == weight.dim(1) - 1 && s.state.dim(1) == channels &&
             s.state.is_contiguous());
  }
  const bool joins = weight.dim(1) <= int64_t{kConvOneTapsMax};
  for_each_run(sequences, x.dim(0), joins, [&](std::span<const StateRows> run, const auto& part) {
    ConvOp op{part(out), part(x), weight, run.front().state, options};
    if (run.size() == 1) return convolve(op);
    if (place_states(run, op.state, op.states)) record_conv(recorder_, op);
  });
}

bool GpuEncoder::place_states(std::span<const StateRows> sequences, Tensor& state,
                              StateTable& states) {
  flush();
  state = {};
  std::vector<Tensor> tensors;
  for (const StateRows& s : sequences) tensors.push_back(s.state);
  states.are_wide = std::all_of(tensors.begin(), tensors.end(), is_wide);
  states.count = static_cast<uint32_t>(tensors.size());
  return recorder_.ok() && recorder_.place_addresses(tensors, states.addresses);
}

void GpuEncoder::convolve(const ConvOp& op) {
  const Action action = fuse(op);
  flush();
  if (action == Action::kLaunch) record_conv(recorder_, op);
}

void GpuEncoder::gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log,
                             Tensor dt_bias, std::span<const StateRows> sequences,
                             const GatedDeltaOptions& o) {
  if (!recorder_.ok()) return;
  MF_CHECK(qkv.shape.back() == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && a.shape.back() == o.decays() &&
           dt_bias.num_elements() == o.decays());
  const int64_t key_dim_max = o.row_decay ? kRowDeltaKeyDimMax : kDeltaKeyDimMax;
  if (o.key_dim > key_dim_max) {
    recorder_.fail(make_error(ErrorCode::kUnsupported,
                              "gated_delta: keys of {} per head{}, at most {}", o.key_dim,
                              o.row_decay ? " that decay by rows" : "", key_dim_max));
    return;
  }
  for (const StateRows& s : sequences) MF_CHECK(s.state.is_contiguous());
  for_each_run(sequences, qkv.dim(0), true, [&](std::span<const StateRows> run, const auto& part) {
    DeltaOp op{part(out), part(qkv), part(a), part(b), a_log, dt_bias, run.front().state, o};
    if (run.size() > 1 && !place_states(run, op.state, op.states)) return;
    if (fuse(op) != Action::kLaunch) return;
    flush();
    recorder_.record(plan_delta(op, recorder_.platform()), writes_of(op.states));
  });
}

void GpuEncoder::selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                                std::span<const StateRows> sequences, const ScanOptions& o) {
  if (!recorder_.ok()) return;
  MF_CHECK(xbc.shape.back() == o.row_width() && o.heads % o.groups == 0 &&
           dt.shape.back() == o.heads);
  if (o.state_dim > kRowDeltaKeyDimMax) {
    recorder_.fail(make_error(ErrorCode::kUnsupported,
                              "selective_scan: states of {} per channel, at most {}", o.state_dim,
                              kRowDeltaKeyDimMax));
    return;
  }
  for (const StateRows& s : sequences) MF_CHECK(s.state.is_contiguous());
  for_each_run(sequences, xbc.dim(0), true, [&](std::span<const StateRows> run, const auto& part) {
    if (run.front().rows == 0) return;
    ScanOp op{part(out), part(xbc), part(dt), weights, run.front().state, o};
    if (run.size() > 1 && !place_states(run, op.state, op.states)) return;
    flush();
    recorder_.record(plan_scan(op, recorder_.platform()), writes_of(op.states));
  });
}

// --- Experts ---

void GpuEncoder::route(const Routes& out, Tensor logits, const RouterOptions& options) {
  if (!recorder_.ok()) return;
  const int64_t experts = logits.shape.back();
  MF_CHECK(out.ids.dim(0) == rows_of(logits) &&
           out.weights.num_elements() == out.ids.num_elements() && out.ids.dim(1) <= experts &&
           out.ids.is_contiguous() && out.weights.is_contiguous() &&
           experts % options.num_groups == 0);
  MF_CHECK(options.table.is_null() ||
           (options.num_groups == 1 && options.correction_bias.is_null() &&
            options.table.dim(1) == out.ids.dim(1) && options.table.is_contiguous() &&
            options.token_ids.is_contiguous() && out.ids.dim(1) <= int64_t{kSimdLanes} &&
            options.token_ids.num_elements() == out.ids.dim(0)));
  if (experts > kExpertsMax) {
    recorder_.fail(
        make_error(ErrorCode::kUnsupported, "route: {} experts, at most {}", experts, kExpertsMax));
    return;
  }
  const RouteOp op = route_op(out, logits, options);
  if (fuse(op) == Action::kLaunch) record(plan_route(op));
}

void GpuEncoder::gated_ffn(Tensor out, Tensor x, const GluWeights& weights, Tensor out_gate,
                           const GluOptions& options) {
  if (!recorder_.ok()) return;
  const auto has_kernels = [&](const Weight& weight) {
    return uses_mma(recorder_.platform(), weight);
  };
  const bool fits = rows_of(x) > 0 && rows_of(x) <= kFewFfnTokensMax && x.is_contiguous() &&
                    out.is_contiguous() && has_kernels(weights.gate) && has_kernels(weights.up) &&
                    has_kernels(weights.down) && weights.gate.format == weights.up.format &&
                    !have_overlap(out, x);
  if (!fits) return Encoder::gated_ffn(out, x, weights, out_gate, options);
  if (!supports("gated_ffn", weights.gate) || !supports("gated_ffn", weights.up) ||
      !supports("gated_ffn", weights.down)) {
    return;
  }
  ScratchScope scope(*this);  // whatever takes its place runs after what waits
  const Tensor intermediate = scratch({x.dim(0), weights.gate.rows}, DType::kF32);
  (void)fuse(FfnOp{out, x, out_gate, intermediate, weights, options});
}

void GpuEncoder::experts_stay(const std::shared_ptr<const std::vector<ExpertWeights>>& experts,
                              const ExpertMemory& memory) {
  tables_.stay(experts, memory);
}

void GpuEncoder::experts_moved(const std::vector<ExpertWeights>& experts,
                               std::span<const size_t> which) {
  flush();
  tables_.move(experts, which);
}

void GpuEncoder::expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                            std::span<const ExpertWeights> ready, const GluOptions& glu) {
  if (!recorder_.ok() || ready.empty() || routes.ids.num_elements() == 0) return;
  MF_CHECK(routes.ids.is_contiguous() && routes.ids.dtype == DType::kI32);
  const ExpertTensors tensors{slots, intermediate, x, glu};
  ExpertLaunch launch;
  tables_.begin(ready);
  while (tables_.has_next()) {
    flush_tables();
    if (!tables_.next(launch)) return;
    set_slots(routes, launch);
    if (fetches(launch)) {
      flush_routes();
      recorder_.record(plan_fetch(recorder_, launch));
      launch.entries = launch.fetched;
    }
    if (takes_few_slots(launch)) {
      launch_few_slots(launch, tensors);
    } else {
      flush();
      record_experts(recorder_, launch, tensors);
    }
  }
}

void GpuEncoder::launch_few_slots(const ExpertLaunch& launch, const ExpertTensors& tensors) {
  FewSlots slots{launch.like, launch, tensors};
  if (waiting_.state() != State::kExperts) flush();
  const std::optional<RouteOp> route = std::exchange(waiting_.route, {});
  const std::optional<FfnOp> ffn = std::exchange(waiting_.ffn, {});
  slots.chooses = route && may_choose(slots, *route, ffn.value_or(FfnOp{}));
  slots.has_ffn = ffn && may_compute(slots, *ffn);
  // Operations that are no part of the launches come before them.
  if (slots.chooses) {
    slots.route = *route;
  } else if (route) {
    recorder_.record(plan_route(*route));
  }
  if (slots.has_ffn) {
    slots.ffn = *ffn;
  } else if (ffn) {
    record_ffn(recorder_, *ffn);
  }
  waiting_.down = record_few_slots(recorder_, slots);
}

void GpuEncoder::combine_experts(Tensor out, Tensor slots, const Routes& routes) {
  const CombineOp op{out, slots, routes.weights};
  if (fuse(op) == Action::kLaunch) record(plan_combine(op));
}

}  // namespace moeflux::gpu
