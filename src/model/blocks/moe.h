// The streaming heart, written once for all families and backends: route, lease, compute what is
// there while the rest arrives, combine in router order.
#pragma once

#include <functional>
#include <string>

#include "model/model.h"
#include "model/weight_store.h"

namespace moeflux::blocks {

/// A SwiGLU network: down(silu(gate x) * up x).
struct SwigluWeights {
  Weight gate;
  Weight up;
  Weight down;
};
SwigluWeights take_swiglu(WeightStore& weights, const std::string& prefix, int64_t hidden_size,
                          int64_t intermediate_size);
/// out [n, hidden] from x [n, hidden].
void swiglu(Encoder& e, Tensor out, Tensor x, const SwigluWeights& weights);

/// out [n, hidden] = sum over the chosen experts of x [n, hidden], given router logits [n,
/// experts]. `while_reading` records work that needs no routed expert (the shared one): it runs
/// while misses are in flight.
Status routed_experts(const ForwardStep& step, LayerId layer, Tensor out, Tensor x,
                      Tensor router_logits, const MoeSpec& moe,
                      const std::function<void()>& while_reading = {});

}  // namespace moeflux::blocks
