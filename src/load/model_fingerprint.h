// Tells one model's states from another's: by its config, its tensors and samples of its weights.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "load/model_loader.h"

namespace moeflux {

/// Equal for a checkpoint and its packs, in whatever order these keep the experts' bits; a pack
/// that was quantised on the way is another model. It reads up to 4 KiB of every tensor
/// but the experts', and one expert each in the first and the last layer that have any. Fails with
/// kIo.
Result<uint64_t> model_fingerprint(const LoadedModel& model);

}  // namespace moeflux
