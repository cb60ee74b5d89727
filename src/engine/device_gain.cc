#include "engine/device_gain.h"

#include "plan/layer_split.h"

namespace moeflux {

Result<bool> gains_from_all_parts(const std::string& model_directory, Device& device,
                                  const EngineOptions& options) {
  return gains_from_all(model_directory, device, {options.context_length, options.draft_layer});
}

}  // namespace moeflux
