#include "model/blocks/moe.h"

#include <utility>

#include "base/format.h"

namespace moeflux::blocks {

GluWeights take_glu(WeightStore& weights, const std::string& prefix, int64_t hidden_size,
                    int64_t intermediate_size) {
  const bool is_numbered = weights.has(prefix + ".w1.weight");
  const auto name = [&](std::string_view usual, std::string_view numbered) {
    return formatted("{}.{}", prefix, is_numbered ? numbered : usual);
  };
  return {weights.matrix(name("gate_proj", "w1"), intermediate_size, hidden_size),
          weights.matrix(name("up_proj", "w3"), intermediate_size, hidden_size),
          weights.matrix(name("down_proj", "w2"), hidden_size, intermediate_size)};
}

Status routed_experts(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      Tensor router_logits, const MoeSpec& moe,
                      const std::function<void()>& while_reading) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t top_k = moe.experts_per_token;
  ExpertHelper* const helper = step.experts.helper();
  Tensor ids = helper ? helper->ids(n, top_k) : step.experts.ids_memory(layer, n, top_k);
  if (ids.is_null()) ids = e.scratch({n, top_k}, DType::kI32);
  const Routes routes{ids, e.scratch({n, top_k}, DType::kF32)};
  const Tensor slots =
      helper ? helper->slots(n, top_k) : e.scratch({n, top_k, x.dim(1)}, DType::kF32);
  const Tensor intermediate = e.scratch({n, top_k, moe.moe_intermediate_size}, DType::kF32);
  e.route(routes, router_logits, moe.router);
  if (helper) helper->take(e, x);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<ExpertLease> lease, step.experts.lease(layer, e, routes));
  if (while_reading) while_reading();
  while (true) {
    // A wave: cached experts first, then arrivals. Each writes rows of `slots` of its own.
    MF_ASSIGN_OR_RETURN(const std::span<const ExpertWeights> ready, lease->wait_some());
    if (ready.empty()) break;
    if (lease->site() == ExpertSite::kHelper) {
      e.submit();  // the device computes what it has meanwhile
      MF_RETURN_IF_ERROR(helper->compute(ready, routes, moe.glu));
    } else {
      e.expert_ffn(slots, intermediate, x, routes, ready, moe.glu);
    }
  }
  e.combine_experts(out, slots, routes);
  e.keep_alive(std::move(lease));
  return {};
}

MoeWeights take_moe(WeightStore& weights, LayerId layer, const MoeNames& names, const MoeSpec& s,
                    int64_t hidden_size) {
  MoeWeights w;
  w.router = weights.router(names.router, s.num_experts, hidden_size);
  if (s.router_bias) w.router_bias = weights.vector(names.router + ".bias", {s.num_experts});
  w.options = s.router;
  if (s.correction_bias) {
    w.options.correction_bias = weights.vector(names.correction_bias, {s.num_experts});
  }
  weights.experts(layer, names.experts, s, hidden_size);
  if (s.shared_intermediate_size > 0) {
    w.shared = take_glu(weights, names.shared, hidden_size, s.shared_intermediate_size);
    if (s.shared_gate) w.shared_gate = weights.matrix(names.shared_gate, 1, hidden_size);
  }
  return w;
}

void router_logits(Encoder& e, Tensor logits, Tensor x, const MoeWeights& w) {
  e.linear(logits, x, w.router);
  if (!w.router_bias.is_null()) e.add_bias(logits, w.router_bias);
}

Status moe(const ForwardStep& step, LayerId layer, Tensor out, Tensor x, const MoeWeights& w,
           const MoeSpec& s) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const Tensor logits = e.scratch({n, s.num_experts}, DType::kF32);
  Tensor shared_gate;
  if (s.shared_gate) {  // beside the router, whose x it shares
    shared_gate = e.scratch({n, 1}, DType::kF32);
    e.linear(shared_gate, x, w.shared_gate);
  }
  router_logits(e, logits, x, w);
  MoeSpec with_tensors = s;
  with_tensors.router = w.options;
  if (s.shared_intermediate_size == 0) {
    return routed_experts(step, layer, out, x, logits, with_tensors);
  }
  const Tensor shared = e.scratch({n, x.dim(1)}, DType::kF32);
  MF_RETURN_IF_ERROR(routed_experts(step, layer, out, x, logits, with_tensors,
                                    [&] { e.gated_ffn(shared, x, w.shared, shared_gate, s.glu); }));
  e.add(out, out, shared);
  return {};
}

}  // namespace moeflux::blocks
