// Chooses random numbers that suit a model's tensors: activations keep their size and tokens spread
// over the experts. Knows no names of checkpoints and no formats.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "load/model_loader.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace moeflux {

struct RandomTensor {
  enum class Kind : uint8_t {
    kMatrix,   // a linear module or embedding, mean zero and `deviation`
    kRouter,   // the same; activations must stay exact
    kTable,    // the same: a part of a table of which tokens read rows
    kExperts,  // the same: a matrix of all experts of a layer
    kFloats,   // a small tensor, uniform between low and high
  };

  Kind kind = Kind::kMatrix;
  /// Canonical; without ".weight" for all but floats. Experts and their biases have the module that
  /// they are below ("layers.7.mlp").
  std::string name;
  Shape shape;  // [leading..., rows, cols]
  float deviation = 0.0f;
  DType dtype = DType::kBf16;  // of floats as converters keep them: bf16 or f32; kI32: of ids
  float low = 0.0f;
  float high = 0.0f;
  LayerId layer{};         // of experts and of their biases
  std::string projection;  // of both: "gate_proj", "up_proj" or "down_proj", else empty
};

/// Every tensor of a model of which there may be a config.json only (assume_model()), in the order
/// in which the family asks for them, experts last.
std::vector<RandomTensor> random_tensors(const LoadedModel& model);

}  // namespace moeflux
