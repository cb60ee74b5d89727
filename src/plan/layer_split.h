// Divides the layers of a model between devices that compute it together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "load/model_loader.h"

namespace moeflux {

/// Bytes of each layer: its weights, all its experts, and its state of a sequence of `context`
/// tokens. `counted` has the sizes and cache types of the model that will be loaded.
std::vector<uint64_t> layer_bytes(const LoadedModel& counted, int64_t context, int64_t step_tokens);

/// The device of each layer, in order: each gets so much of the model as it has of the free memory.
/// Layers that share weights, or read the state of another beside weights, are together.
std::vector<size_t> split_layers(const ModelSpec& spec, std::span<const uint64_t> layer_bytes,
                                 std::span<const uint64_t> free_bytes);

}  // namespace moeflux
