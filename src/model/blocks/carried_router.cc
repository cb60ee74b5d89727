#include "model/blocks/carried_router.h"

#include <vector>

#include "model/repeated.h"

namespace moeflux::blocks {

CarriedRouter take_carried_router(WeightStore& weights, const std::string& prefix,
                                  const MoeSpec& moe, int64_t hidden_size, bool is_first) {
  const int64_t width = moe.router_hidden_size;
  const std::string network = prefix + ".router_mlp.";
  CarriedRouter r;
  r.down = weights.router(prefix + ".down_proj", width, hidden_size);
  r.down_bias = weights.vector(prefix + ".down_proj.bias", {width});
  if (!is_first) r.carried_scale = weights.vector(prefix + ".router_states_scale", {width});
  r.norm = weights.vector(network + "norm.weight", {width});
  r.first = weights.router(network + "fc1", width, width);
  r.first_bias = weights.vector(network + "fc1.bias", {width});
  r.second = weights.router(network + "fc2", width, width);
  r.second_bias = weights.vector(network + "fc2.bias", {width});
  r.out = weights.router(network + "out_proj", moe.num_scored(), width);
  r.ones = weights.constant(std::vector<float>(static_cast<size_t>(width), 1.0f));
  r.norm_eps = moe.router_norm_eps;
  return r;
}

void carried_logits(Encoder& e, Tensor logits, Tensor x, const CarriedRouter& r, Tensor carried) {
  ScratchScope scope(e);
  const Tensor state = e.scratch(carried.shape, DType::kF32);
  const Tensor inner = e.scratch(carried.shape, DType::kF32);
  e.run(ops::Linear{state, x, r.down});
  e.run(ops::AddBias{state, r.down_bias});
  const auto rows = [&](Tensor vector) { return rows_of_vector(vector, carried.dim(0)); };
  if (!r.carried_scale.is_null()) {
    e.run(ops::MulActivated{carried, carried, rows(r.carried_scale), Activation::kIdentity});
    e.run(ops::Add{state, state, carried});
  }
  e.run(ops::Copy{carried, state});
  e.run(ops::RmsNorm{state, state, r.norm, r.norm_eps});
  const auto layer = [&](const Weight& weight, Tensor bias) {
    e.run(ops::Linear{inner, state, weight});
    e.run(ops::AddBias{inner, bias});
    e.run(ops::MulActivated{state, rows(r.ones), inner, Activation::kGelu});
  };
  layer(r.first, r.first_bias);
  layer(r.second, r.second_bias);
  e.run(ops::Linear{logits, state, r.out});
}

}  // namespace moeflux::blocks
