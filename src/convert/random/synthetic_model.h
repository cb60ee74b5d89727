// Random checkpoints of public models' exact shapes, for measuring without downloading: config.json
// and tensors as a conversion to the MLX layout would hold them. The tensors are those that the
// model's family asks for, so that any model of which there is a config.json has a shape.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/random/synthetic.h"

namespace moeflux {

struct SyntheticModelOptions {
  int64_t num_layers = 0;  // the first N of the model's; 0: all
  int bits = 4;            // 4 or 8, of everything but routers and gates, which have 8
  int group_size = 64;     // 32, 64 or 128
};

struct SyntheticModelShape {
  std::string_view name;   // "tiny"
  std::string model_type;  // as its config.json has it
  int64_t num_layers = 0;
};

/// All shapes there are: every public model's, and small ones for tests.
std::vector<SyntheticModelShape> synthetic_model_shapes();

/// The config.json of a model's first layers (0: all), without the publisher's own quantisation.
/// Fails with kNotFound listing the names, or kInvalidArgument when it has fewer layers.
Result<std::string> config_like(std::string_view name, int64_t num_layers);

/// Fails as config_like(), or with kInvalidArgument for options that do not fit.
Result<SyntheticCheckpoint> make_synthetic_model(std::string_view name,
                                                 const SyntheticModelOptions& options);

}  // namespace moeflux
