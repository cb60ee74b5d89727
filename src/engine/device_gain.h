// Whether several devices serve a model better than one.
#pragma once

#include <string>

#include "backend/device.h"
#include "base/result.h"
#include "engine/engine.h"

namespace moeflux {

/// True where the planner expects a gain of a model's layers on all parts of a device over all on
/// the first alone; see plan/layer_split.h. Takes no memory of them. Fails as Engine::open() where
/// the model is at fault.
Result<bool> gains_from_all_parts(const std::string& model_directory, Device& device,
                                  const EngineOptions& options);

}  // namespace moeflux
