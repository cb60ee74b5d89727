#include "model/blocks/moe.h"

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "model/repeated.h"

namespace moeflux::blocks {

FfnWeights take_ffn(WeightStore& weights, const std::string& prefix, int64_t hidden_size,
                    int64_t intermediate_size, const GluOptions& glu, bool bias) {
  const bool is_linear = weights.has(prefix + ".input_linear.weight");
  if (is_linear || weights.has(prefix + ".gate_up_proj.weight")) {
    FfnWeights w;
    w.gate_up = weights.matrix(prefix + (is_linear ? ".input_linear" : ".gate_up_proj"),
                               2 * intermediate_size, hidden_size);
    w.glu.down = weights.matrix(prefix + (is_linear ? ".output_linear" : ".down_proj"), hidden_size,
                                intermediate_size);
    return w;
  }
  if (weights.has(prefix + ".w13_dn.weight")) {
    FfnWeights w;
    w.gate_up = weights.matrix(prefix + ".w13_dn", 2 * intermediate_size, hidden_size);
    w.in_turn = true;
    w.glu.down = weights.matrix(prefix + ".w2_md", hidden_size, intermediate_size);
    return w;
  }
  const bool is_numbered = weights.has(prefix + ".w1.weight");
  const auto name = [&](std::string_view usual, std::string_view numbered) {
    return formatted("{}.{}", prefix, is_numbered ? numbered : usual);
  };
  FfnWeights w;
  const size_t modules_before = weights.modules().size();
  if (has_gate(glu)) {
    w.glu.gate = weights.matrix(name("gate_proj", "w1"), intermediate_size, hidden_size);
  }
  w.glu.up = weights.matrix(name("up_proj", "w3"), intermediate_size, hidden_size);
  if (!has_gate(glu)) w.glu.gate = w.glu.up;
  w.glu.down = weights.matrix(name("down_proj", "w2"), hidden_size, intermediate_size);
  if (bias) {
    w.gate_bias = weights.vector(name("gate_proj", "w1") + ".bias", {intermediate_size});
    w.up_bias = weights.vector(name("up_proj", "w3") + ".bias", {intermediate_size});
    w.down_bias = weights.vector(name("down_proj", "w2") + ".bias", {hidden_size});
  } else {
    weights.add_network(w.glu, modules_before);
  }
  return w;
}

namespace {

/// unit [n, width] = glu(gate x, up x) of x [n, hidden].
void gated_unit(Encoder& e, Tensor unit, Tensor x, const FfnWeights& w, const GluOptions& glu) {
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t width = unit.dim(1);
  if (w.gate_up.is_null()) {
    const Tensor up = e.scratch({n, width}, DType::kF32);
    e.run(ops::Linear{unit, x, w.glu.gate});
    e.run(ops::Linear{up, x, w.glu.up});
    return e.run(ops::Glu{unit, unit, up, glu});
  }
  const Tensor both = e.scratch({n, w.gate_up.rows}, DType::kF32);
  e.run(ops::Linear{both, x, w.gate_up});
  if (!w.in_turn) {
    return e.run(ops::Glu{unit, both.slice(1, 0, width), both.slice(1, width, width), glu});
  }
  const Tensor up = e.scratch({n, width}, DType::kF32);
  const Tensor turns = both.split_last(2);
  e.run(ops::Copy{unit.split_last(1), turns.slice(2, 0, 1)});
  e.run(ops::Copy{up.split_last(1), turns.slice(2, 1, 1)});
  e.run(ops::Glu{unit, unit, up, glu});
}

void biased_ffn(Encoder& e, Tensor out, Tensor x, const FfnWeights& w, const GluOptions& glu) {
  ScratchScope scope(e);
  const Tensor gate = e.scratch({x.dim(0), w.glu.gate.rows}, DType::kF32);
  const Tensor up = e.scratch({x.dim(0), w.glu.up.rows}, DType::kF32);
  e.run(ops::Linear{gate, x, w.glu.gate});
  e.run(ops::AddBias{gate, w.gate_bias});
  e.run(ops::Linear{up, x, w.glu.up});
  e.run(ops::AddBias{up, w.up_bias});
  e.run(ops::Glu{gate, gate, up, glu});
  e.run(ops::Linear{out, gate, w.glu.down});
  e.run(ops::AddBias{out, w.down_bias});
}

}  // namespace

void ffn(Encoder& e, Tensor out, Tensor x, const FfnWeights& w, Tensor out_gate,
         const GluOptions& glu) {
  if (!w.down_bias.is_null()) return biased_ffn(e, out, x, w, glu);
  if (w.gate_up.is_null()) return e.run(ops::GatedFfn{out, x, w.glu, out_gate, glu});
  ScratchScope scope(e);
  const Tensor unit = e.scratch({x.dim(0), w.gate_up.rows / 2}, DType::kF32);
  gated_unit(e, unit, x, w, glu);
  e.run(ops::Linear{out, unit, w.glu.down});
  if (!out_gate.is_null()) e.run(ops::MulActivated{out, out, out_gate, Activation::kSigmoid});
}

Status routed_experts(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      Tensor router_logits, const MoeSpec& moe,
                      const std::function<void()>& while_reading, Tensor expert_norm,
                      Tensor shared_weights) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t top_k = moe.experts_per_token;
  ExpertHelper* const helper = step.experts.help().helper();
  Tensor ids = helper ? helper->ids(n, top_k) : step.experts.ids_memory(layer, n, top_k);
  if (ids.is_null()) ids = e.scratch({n, top_k}, DType::kI32);
  const Routes routes{ids, e.scratch({n, top_k}, DType::kF32)};
  const Tensor slots =
      helper ? helper->slots(n, top_k) : e.scratch({n, top_k, x.dim(1)}, DType::kF32);
  const Tensor intermediate = e.scratch({n, top_k, moe.moe_intermediate_size}, DType::kF32);
  Tensor results = slots;
  if (!expert_norm.is_null()) results = e.scratch(slots.shape, DType::kF32);
  if (moe.weighed_shared == 0) {
    choose_experts(e, routes, router_logits, moe, moe.router);
  } else {
    RouterOptions scores = moe.router;
    scores.normalize = false;
    scores.scale = 1.0f;
    choose_experts(e, routes, router_logits.slice(1, 0, moe.num_experts), moe, scores);
    e.run(ops::ShareWeights{shared_weights, routes.weights,
                            router_logits.slice(1, moe.num_experts, moe.weighed_shared),
                            moe.router.scale});
  }
  if (moe.weighs_input) {
    MF_CHECK(top_k == 1);
    const Tensor weighed = e.scratch(x.shape, DType::kF32);
    e.run(ops::MulActivated{weighed, x, routes.weights, Activation::kIdentity});
    x = weighed;
  }
  if (helper) helper->take(e, x);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<ExpertLease> lease, step.experts.lease(layer, e, routes));
  bool is_recorded = !while_reading;
  while (true) {
    if (!is_recorded && !lease->begins_elsewhere()) {
      while_reading();
      is_recorded = true;
    }
    // A wave: cached experts first, then arrivals. Each writes rows of `slots` of its own.
    MF_ASSIGN_OR_RETURN(const std::span<const ExpertWeights> ready, lease->wait_some());
    if (ready.empty()) break;
    if (lease->site() == ExpertSite::kHelper) {
      e.submit();  // the device computes what it has meanwhile
      MF_RETURN_IF_ERROR(helper->compute(ready, routes, moe.glu));
    } else {
      e.run(ops::ExpertFfn{slots, intermediate, x, routes, ready, moe.glu});
    }
  }
  if (!expert_norm.is_null()) {
    const Shape rows{n * top_k, x.dim(1)};
    const Tensor flat = results.reshape(rows);
    e.run(ops::MulActivated{flat, slots.reshape(rows), rows_of_vector(expert_norm, rows[0]),
                            Activation::kIdentity});
    e.run(ops::RmsNorm{flat, flat, Tensor{}, moe.expert_norm_eps});
  }
  if (moe.weighs_input) {
    e.run(ops::Copy{out, results.reshape(out.shape)});
  } else {
    e.run(ops::CombineExperts{out, results, routes});
  }
  e.keep_alive(std::move(lease));
  return {};
}

namespace {

/// `prefix` has gate_proj, up_proj and down_proj of all shared experts, or the publisher's stacks.
WeighedShared take_weighed_shared(WeightStore& weights, const std::string& prefix, const MoeSpec& s,
                                  int64_t hidden_size) {
  const int64_t count = s.weighed_shared;
  const int64_t width = s.moe_intermediate_size;
  WeighedShared w;
  if (weights.has(prefix + ".shared_w13_weight") ||
      weights.has(prefix + ".shared_w13_weight.weight")) {
    w.in.gate_up =
        weights.stacked_matrix(prefix + ".shared_w13_weight", count, 2 * width, hidden_size);
    w.in.in_turn = true;
    w.down = weights.stacked_matrix(prefix + ".shared_w2_weight", count, hidden_size, width);
    return w;
  }
  w.in.glu.gate = weights.stacked_matrix(prefix + ".gate_proj", count, width, hidden_size);
  w.in.glu.up = weights.stacked_matrix(prefix + ".up_proj", count, width, hidden_size);
  w.down = weights.stacked_matrix(prefix + ".down_proj", count, hidden_size, width);
  return w;
}

/// out [n, hidden] = the sum of shared experts times their weights [n, shared].
void weighed_shared(Encoder& e, Tensor out, Tensor x, const WeighedShared& w, Tensor shares,
                    const MoeSpec& s) {
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t count = s.weighed_shared;
  const int64_t width = s.moe_intermediate_size;
  const Tensor unit = e.scratch({n, count * width}, DType::kF32);
  const Tensor results = e.scratch({n, count, out.dim(1)}, DType::kF32);
  const Tensor units = unit.split_last(width);
  gated_unit(e, unit, x, w.in, s.glu);
  e.run(ops::MulActivated{units, units, shares.split_last(1), Activation::kIdentity});
  e.run(ops::HeadLinear{results, units, w.down, {out.dim(1), 0, out.dim(1)}});
  const auto result = [&](int64_t i) {
    return results.reshape({n, count * out.dim(1)}).slice(1, i * out.dim(1), out.dim(1));
  };
  if (count == 1) return e.run(ops::Copy{out, result(0)});
  e.run(ops::Add{out, result(0), result(1)});
  for (int64_t i = 2; i < count; ++i) e.run(ops::Add{out, out, result(i)});
}

}  // namespace

MoeWeights take_moe(WeightStore& weights, LayerId layer, const MoeNames& names, const MoeSpec& s,
                    int64_t hidden_size) {
  MoeWeights w;
  if (s.router_hidden_size > 0) {
    w.carried_router =
        take_carried_router(weights, names.router, s, hidden_size, layer == LayerId{0});
  } else {
    w.router = weights.router(names.router, s.num_scored(), hidden_size);
  }
  if (s.router_bias) w.router_bias = weights.vector(names.router + ".bias", {s.num_experts});
  w.router_soft_cap = s.router_soft_cap;
  w.router_multiplier = s.router_multiplier;
  w.options = s.router;
  if (s.correction_bias) {
    w.options.correction_bias = weights.vector(
        names.correction_bias, {s.num_experts + (s.skips ? 1 : 0)}, s.correction_add);
  }
  if (s.skips) {
    std::vector<float> factors(static_cast<size_t>(s.num_experts + 1), 1.0f);
    factors.back() = 0.0f;
    w.options.expert_scale = weights.constant(factors);
  }
  if (s.listed_tokens > 0) {
    w.options.table =
        weights.ids(names.table, {s.listed_tokens, s.experts_per_token}, s.num_experts);
  }
  if (s.latent_size > 0) {
    w.latent_in = weights.matrix(names.latent_in, s.latent_size, hidden_size);
    w.latent_out = weights.matrix(names.latent_out, hidden_size, s.latent_size);
    if (s.latent_out_norm) {
      w.latent_out_norm = weights.vector(names.latent_out_norm + ".weight", {s.latent_size});
    }
  }
  if (s.latent_norm_eps > 0.0f) {
    w.latent_norm = weights.vector(names.latent_norm + ".weight", {s.latent_size}, 1.0f);
  }
  if (s.expert_norm_eps > 0.0f) {
    const int64_t width = s.latent_size > 0 ? s.latent_size : hidden_size;
    w.expert_norm = weights.vector(names.expert_norm + ".weight", {width}, 1.0f);
  }
  weights.experts(layer, names.experts, s, s.latent_size > 0 ? s.latent_size : hidden_size);
  if (s.weighed_shared > 0) {
    w.weighed = take_weighed_shared(weights, names.shared, s, hidden_size);
  }
  if (s.out_scale) w.out_scale = weights.host_vector(names.out_scale, 1, 1.0f).front();
  if (s.shared_intermediate_size > 0) {
    w.shared = take_ffn(weights, names.shared, hidden_size, s.shared_intermediate_size, s.glu);
    if (s.shared_gate) w.shared_gate = weights.matrix(names.shared_gate, 1, hidden_size);
  }
  return w;
}

namespace {

// The skip, whose weight is 0, is the first expert's to compute: its row of the table says so.
void choose_or_skip(Encoder& e, const Routes& out, Tensor logits, const MoeSpec& moe,
                    const RouterOptions& options) {
  MF_CHECK(moe.experts_per_token == 1);
  ScratchScope scope(e);
  const int64_t n = logits.dim(0);
  const Routes best{e.scratch(out.ids.shape, DType::kI32), out.weights};
  const Tensor unused = e.scratch(out.weights.shape, DType::kF32);
  const Tensor table = e.scratch({moe.num_experts + 1, 1}, DType::kI32);
  std::vector<int32_t> numbers(static_cast<size_t>(moe.num_experts + 1));
  std::iota(numbers.begin(), numbers.end(), 0);
  numbers.back() = 0;
  e.write(table, std::as_bytes(std::span(numbers)));
  e.run(ops::Route{best, logits, options});
  e.run(ops::Route{{out.ids, unused},
                   logits.slice(1, 0, moe.num_experts),
                   {.table = table, .token_ids = best.ids.reshape({n})}});
}

}  // namespace

// Softmax keeps the order of corrected logits. The experts that it chooses are a table with a row
// for each token, and the scores of the logits themselves weigh them.
void choose_experts(Encoder& e, const Routes& out, Tensor logits, const MoeSpec& moe,
                    const RouterOptions& options) {
  if (moe.skips) return choose_or_skip(e, out, logits, moe, options);
  if (!moe.corrects_logits) return e.run(ops::Route{out, logits, options});
  ScratchScope scope(e);
  const Tensor corrected = e.scratch(logits.shape, DType::kF32);
  const Routes best{e.scratch(out.ids.shape, DType::kI32), e.scratch(out.ids.shape, DType::kF32)};
  const Tensor rows = e.scratch({logits.dim(0)}, DType::kI32);
  e.run(ops::Copy{corrected, logits});
  e.run(ops::AddBias{corrected, options.correction_bias});
  e.run(ops::Route{best, corrected, {}});
  std::vector<int32_t> numbers(static_cast<size_t>(logits.dim(0)));
  std::iota(numbers.begin(), numbers.end(), 0);
  e.write(rows, std::as_bytes(std::span(numbers)));
  RouterOptions weighing = options;
  weighing.correction_bias = {};
  weighing.table = best.ids;
  weighing.token_ids = rows;
  e.run(ops::Route{out, logits, weighing});
}

RouterOptions options_for(const MoeWeights& weights, Tensor token_ids) {
  RouterOptions options = weights.options;
  if (!options.table.is_null()) options.token_ids = token_ids;
  return options;
}

void router_logits(Encoder& e, Tensor logits, Tensor x, const MoeWeights& w, Tensor carried) {
  if (!w.carried_router.down.is_null()) {
    return carried_logits(e, logits, x, w.carried_router, carried);
  }
  e.run(ops::Linear{logits, x, w.router});
  if (!w.router_bias.is_null()) e.run(ops::AddBias{logits, w.router_bias});
  if (w.router_multiplier != 1.0f) e.run(ops::Scale{logits, logits, w.router_multiplier});
  if (w.router_soft_cap > 0.0f) e.run(ops::SoftCap{logits, w.router_soft_cap});
}

Status moe(const ForwardStep& step, LayerId layer, Tensor out, Tensor x, const MoeWeights& w,
           const MoeSpec& s, float rms_norm_eps) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const Tensor logits = e.scratch({n, s.num_scored()}, DType::kF32);
  const bool is_weighed = s.weighed_shared > 0;
  const Tensor shares = is_weighed ? e.scratch({n, s.weighed_shared}, DType::kF32) : Tensor{};
  Tensor shared_gate;
  if (s.shared_gate) {  // beside the router, whose x it shares
    shared_gate = e.scratch({n, 1}, DType::kF32);
    e.run(ops::Linear{shared_gate, x, w.shared_gate});
  }
  Tensor input = x;
  Tensor sum = out;
  if (s.latent_size > 0) {
    input = e.scratch({n, s.latent_size}, DType::kF32);
    sum = e.scratch({n, s.latent_size}, DType::kF32);
    e.run(ops::Linear{input, x, w.latent_in});
    if (!w.latent_norm.is_null()) {
      e.run(ops::RmsNorm{input, input, w.latent_norm, s.latent_norm_eps});
    }
  }
  router_logits(e, logits, x, w, step.carried);
  MoeSpec with_tensors = s;
  with_tensors.router = options_for(w, step.token_ids);
  const bool has_shared = s.shared_intermediate_size > 0 || is_weighed;
  const Tensor shared = has_shared ? e.scratch({n, x.dim(1)}, DType::kF32) : Tensor{};
  const auto compute_shared = [&] {
    if (is_weighed) return weighed_shared(e, shared, x, w.weighed, shares, s);
    if (has_shared) ffn(e, shared, x, w.shared, shared_gate, s.shared_glu.value_or(s.glu));
  };
  MF_RETURN_IF_ERROR(routed_experts(step, layer, sum, input, logits, with_tensors, compute_shared,
                                    w.expert_norm, shares));
  if (s.latent_out_norm) e.run(ops::RmsNorm{sum, sum, w.latent_out_norm, rms_norm_eps});
  if (s.latent_size > 0) e.run(ops::Linear{out, sum, w.latent_out});
  if (has_shared) e.run(ops::Add{out, out, shared});
  if (s.out_scale) e.run(ops::Scale{out, out, w.out_scale});
  if (s.out_multiplier != 1.0f) e.run(ops::Scale{out, out, s.out_multiplier});
  return {};
}

}  // namespace moeflux::blocks
