// A router that is a network: a projection of the token, to which the projection that the router
// before saw is added by factors, is normed and passes two layers of GELU before experts are
// scored.
#pragma once

#include <cstdint>
#include <string>

#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux::blocks {

struct CarriedRouter {
  Weight down;  // null where a router is one matrix
  Tensor down_bias;
  Tensor carried_scale;  // null in the first router, before which there is none
  Tensor norm;
  Weight first;
  Tensor first_bias;
  Weight second;
  Tensor second_bias;
  Weight out;
  Tensor ones;  // [width]
  float norm_eps = 0.0f;
};

/// Claims what is below `prefix` ("layers.0.mlp.gate").
CarriedRouter take_carried_router(WeightStore& weights, const std::string& prefix,
                                  const MoeSpec& moe, int64_t hidden_size, bool is_first);
/// logits [n, scored] from x [n, hidden]. `carried` [n, width] is what the router before has left,
/// and then what this one leaves.
void carried_logits(Encoder& e, Tensor logits, Tensor x, const CarriedRouter& router,
                    Tensor carried);

}  // namespace moeflux::blocks
