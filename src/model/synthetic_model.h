// Random checkpoints of real models' exact shapes, for measuring without downloading: config.json
// and tensors as a conversion to the MLX layout would hold them. The shapes are in
// families/synthetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/synthetic.h"

namespace moeflux {

struct SyntheticModelOptions {
  int64_t num_layers = 0;  // the first N of the model's; 0: all
  int bits = 4;            // 4 or 8, of everything but routers and gates, which have 8
  int group_size = 64;     // 32, 64 or 128
};

struct SyntheticModelShape {
  std::string_view name;  // "tiny"
  std::string_view note;  // "for tests: ..."
  int64_t num_layers = 0;
};

/// All shapes there are.
std::vector<SyntheticModelShape> synthetic_model_shapes();

/// Fails with kNotFound listing the names, or kInvalidArgument for options that do not fit.
Result<SyntheticCheckpoint> make_synthetic_model(std::string_view name,
                                                 const SyntheticModelOptions& options);

}  // namespace moeflux
