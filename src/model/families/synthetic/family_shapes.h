// A family's entry in the list of synthetic models: its shapes, and the function that makes tensors
// of one.
#pragma once

#include <cmath>

#include "model/synthetic_model.h"

namespace moeflux::synthetic {

struct FamilyShapes {
  std::vector<SyntheticModelShape> (*list)();
  /// `name` is of the list and the options have been checked against it.
  SyntheticCheckpoint (*make)(std::string_view name, const SyntheticModelOptions& options);
};

extern const FamilyShapes latent_attention_shapes;
extern const FamilyShapes qwen3_5_moe_shapes;

/// How converters store routers and gates: a config spells it out module by module.
constexpr LinearFormat kRouterFormat{.bits = 8, .group_size = 64};

// The residual stream is the embedding, which is random per token, plus layers' outputs of a
// twentieth of its size: after any number of layers the routers see what is particular to a token,
// and tokens spread over the experts.
constexpr float kEmbeddingDeviation = 1.0f;
constexpr float kOutputGain = 0.05f;

/// Keeps the size of activations when gain is 1: a sum of `cols` products of unit variance.
inline float deviation(int64_t cols, float gain) {
  return gain / std::sqrt(static_cast<float>(cols));
}

}  // namespace moeflux::synthetic
