// What pack and synth share: running a packer with its bar and its summary, and clearing a folder.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/model_packer.h"

namespace moeflux {

/// Packs and says how fast, into a cleared folder with PackRun::replace. A run that was stopped is
/// kFailedPrecondition.
Status run_packer(const ModelPacker& packer, PackRun run);

/// Removes what earlier checkpoints and packs have left in a folder; config.json and
/// expert_pack.json first, so that a folder that is half removed is no model.
Status remove_checkpoint(const std::string& directory);

/// "18.2 GiB in 14.1 s, 1.29 GB/s".
std::string describe_rate(uint64_t bytes, double seconds);

}  // namespace moeflux
