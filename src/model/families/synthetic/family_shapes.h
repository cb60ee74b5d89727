// What a family adds to the list of synthetic models: its shapes, and how one becomes tensors.
#pragma once

#include "model/synthetic_model.h"

namespace moeflux::synthetic {

struct FamilyShapes {
  std::vector<SyntheticModelShape> (*list)();
  /// `name` is of the list and the options have been checked against it.
  SyntheticCheckpoint (*make)(std::string_view name, const SyntheticModelOptions& options);
};

extern const FamilyShapes qwen3_5_moe_shapes;

/// Of routers and gates, as converters choose it: a config spells it out module by module.
constexpr LinearFormat kRouterFormat{.bits = 8, .group_size = 64};

}  // namespace moeflux::synthetic
