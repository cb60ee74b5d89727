// Tells one model's states from another's: by its config, its tensors and samples of its weights.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/model_loader.h"

namespace moeflux {

/// Equal for a checkpoint and its packs, in whatever order these keep the experts' bits; a pack
/// that was quantised on the way is another model. Of every tensor but the experts' it reads up to
/// 4 KiB, of the experts one in the first layer that has any and one in the last. Fails with kIo.
Result<uint64_t> model_fingerprint(const LoadedModel& model);

}  // namespace moeflux
