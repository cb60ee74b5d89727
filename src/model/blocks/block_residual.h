// A residual whose branches attend to the states that a token had behind blocks of layers
// (attention residuals).
#pragma once

#include <memory>

#include "model/blocks/residual_stream.h"

namespace moeflux::blocks {

/// Claims the queries of branches.
std::unique_ptr<Residual> make_block_residual(const ModelSpec& spec, WeightStore& weights);

}  // namespace moeflux::blocks
