// Runs a packer with its bar and its summary, for pack and synth.
#pragma once

#include <string>

#include "base/result.h"
#include "convert/pack/model_packer.h"

namespace moeflux {

/// Packs and says how fast. A run that was stopped is kFailedPrecondition.
Status run_packer(const ModelPacker& packer, PackRun run);

/// "18.2 GiB in 14.1 s, 1.29 GB/s".
std::string describe_rate(uint64_t bytes, double seconds);

}  // namespace moeflux
