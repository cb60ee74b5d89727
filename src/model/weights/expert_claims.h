// Routed experts in a checkpoint: how they are spelled, or packed.
#pragma once

#include <optional>
#include <string_view>

#include "backend/device.h"
#include "experts/expert_table.h"
#include "model/config/quant_config.h"
#include "model/weights/tensor_claims.h"

namespace moeflux {

// Both complete a layer of which numbers and shapes are known, and claim what it is made of.
// Failures go to the claims.

/// From tensors below canonical `prefix` ("layers.0.mlp"), in any of the spellings of
/// expert_claims.cc.
std::optional<ExpertLayer> stored_experts(TensorClaims& claims, const QuantConfig& quant,
                                          const Device& device, std::string_view prefix,
                                          ExpertLayer layer, bool with_bias);

/// From the index's expert pack.
std::optional<ExpertLayer> packed_experts(TensorClaims& claims, const Device& device, LayerId id,
                                          ExpertLayer layer, bool with_bias);

/// Gives matrices in the order of checkpoints the orders that the device prefers.
void choose_orders_of_stored(ExpertLayer& layer, const Device& device);

}  // namespace moeflux
