// How checkpoints spell a module in each storage format. What tensors there are decides which
// format a module has, and config.json must not say otherwise.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/quant_config.h"
#include "model/tensor_claims.h"
#include "model/weight_origin.h"
#include "quant/format.h"

namespace moeflux {

/// The spelling of one format. Every file in stored_formats/ defines `const StoredFormat
/// <file>_stored`; the list of them is generated, so that adding a spelling is adding a file.
struct StoredFormat {
  /// The quant_method of config.json's quantization_config that means it.
  std::string_view quant_method;
  /// They follow the module's name in the names of its parts; empty for parts that there are not.
  Parts<std::string_view> suffixes;
  /// The format of a module [leading..., rows, cols] whose parts these are, all that suffixes name.
  /// Fails when they do not make one.
  Result<QuantFormat> (*read)(const StoredModule& module, const Shape& shape);
};

std::span<const StoredFormat* const> stored_formats();

/// The format and the tensors of a module [leading..., rows, cols]. `weight_name` follows the
/// module's name where the weight is plain or affine. Failures go to the claims. Nothing is
/// claimed.
std::optional<StoredModule> find_module(TensorClaims& claims, const QuantConfig& quant,
                                        const std::string& module, std::string_view weight_name,
                                        const Shape& shape);

/// Claims the tensors of a module that was found.
void claim_parts(TensorClaims& claims, const StoredModule& module);

/// Names of the tensors of an affine module.
Parts<std::string> affine_names(const std::string& module, std::string_view weight_name);

}  // namespace moeflux
