// Element types of keys and values in the states of an engine's sequences.
#pragma once

#include <string_view>

#include "backend/device.h"
#include "base/result.h"
#include "engine/engine.h"
#include "model/model_spec.h"

namespace moeflux {

/// "f32", "f16" or "q8_0".
std::string_view cache_type_name(DType type);
/// The inverse. Fails with kInvalidArgument.
Result<DType> parse_cache_type(std::string_view name);

/// The types that were asked for, or the device's preferred one. Fails with kUnsupported where the
/// device or a layer of the model does not take one.
Result<CacheTypes> cache_types_for(const Device& device, const ModelSpec& model,
                                   const EngineOptions& options);

}  // namespace moeflux
