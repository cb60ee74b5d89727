// Which storage format a checkpoint's module has: what tensors there are decides, and config.json
// must not say otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/quant_config.h"
#include "model/tensor_claims.h"
#include "quant/format.h"

namespace moeflux {

/// The format of a module [leading..., rows, cols] whose main tensor is module + weight_name.
/// Failures go to the claims. Nothing is claimed.
std::optional<QuantFormat> find_format(TensorClaims& claims, const QuantConfig& quant,
                                       const std::string& module, std::string_view weight_name,
                                       const Shape& shape);

/// Claims the tensors of a module whose format was found: codes, then scales and biases where the
/// format has them.
std::vector<const TensorEntry*> claim_parts(TensorClaims& claims, const std::string& module,
                                            std::string_view weight_name,
                                            const QuantFormat& format);

}  // namespace moeflux
