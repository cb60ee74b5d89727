#include "model/blocks/moe.h"

#include <utility>

namespace moeflux::blocks {

SwigluWeights take_swiglu(WeightStore& weights, const std::string& prefix, int64_t hidden_size,
                          int64_t intermediate_size) {
  return {weights.matrix(prefix + ".gate_proj", intermediate_size, hidden_size),
          weights.matrix(prefix + ".up_proj", intermediate_size, hidden_size),
          weights.matrix(prefix + ".down_proj", hidden_size, intermediate_size)};
}

void swiglu(Encoder& e, Tensor out, Tensor x, const SwigluWeights& weights) {
  ScratchScope scope(e);
  const Shape intermediate{x.dim(0), weights.gate.rows};
  const Tensor gate = e.scratch(intermediate, DType::kF32);
  const Tensor up = e.scratch(intermediate, DType::kF32);
  const Tensor activated = e.scratch(intermediate, DType::kF32);
  e.linear(gate, x, weights.gate);
  e.linear(up, x, weights.up);
  e.glu(activated, gate, up, Activation::kSilu);
  e.linear(out, activated, weights.down);
}

Status routed_experts(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      Tensor router_logits, const MoeSpec& moe,
                      const std::function<void()>& while_reading) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const int64_t top_k = moe.experts_per_token;
  const Routes routes{e.scratch({n, top_k}, DType::kI32), e.scratch({n, top_k}, DType::kF32)};
  const Tensor slots = e.scratch({n, top_k, x.dim(1)}, DType::kF32);
  const Tensor intermediate = e.scratch({n, top_k, moe.moe_intermediate_size}, DType::kF32);
  e.route(routes, router_logits, moe.router);
  MF_ASSIGN_OR_RETURN(std::unique_ptr<ExpertLease> lease, step.experts.lease(layer, e, routes));
  if (while_reading) while_reading();
  while (true) {
    // A wave: cached experts first, then arrivals. Each writes rows of `slots` of its own.
    MF_ASSIGN_OR_RETURN(const std::span<const ExpertWeights> ready, lease->wait_some());
    if (ready.empty()) break;
    e.expert_ffn(slots, intermediate, x, routes, ready, Activation::kSilu);
  }
  e.combine_experts(out, slots, routes);
  e.keep_alive(std::move(lease));
  return {};
}

}  // namespace moeflux::blocks
