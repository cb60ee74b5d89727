// Attention of many rows in tiles of 64 keys: mma_attention_many.h, mma_attention_team.h.
#pragma once

#include "backend/gpu/launch/attention_plans.h"
#include "backend/gpu/launch/recorder.h"

namespace moeflux::gpu {

struct ManyKernel;

/// The kernel for many rows and how their tiles are divided; nothing for few rows of a sequence, or
/// where there is not enough shared memory.
const ManyKernel* choose_many(AttentionParams& p, DType type, const Platform& platform);
/// Records it and the launch that brings keys and values into halves. False if the recorder fails.
bool record_many(Recorder& recorder, const AttentionHeads& heads, const ManyKernel& kernel,
                 AttentionResult& result);

}  // namespace moeflux::gpu
