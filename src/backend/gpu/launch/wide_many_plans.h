// Attention over wide rows of many queries: mma_attention_wide_many.h.
#pragma once

#include "backend/gpu/launch/attention_plans.h"
#include "backend/gpu/launch/recorder.h"

namespace moeflux::gpu {

/// Whether one launch brings keys into halves for groups of many rows, which leave no core idle.
bool fits_wide_many(const AttentionParams& p, DType type, const Platform& platform);
/// Records both. False if the recorder fails.
bool record_wide_many(Recorder& recorder, const AttentionHeads& heads, AttentionResult& result);

}  // namespace moeflux::gpu
