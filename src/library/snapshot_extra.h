// What a snapshot holds beside the engine's state: the sampler, and the logits of the last token.
//
// Little-endian, without padding: u32 version (1); f32 temperature, top_p, min_p, repeat_penalty,
// presence_penalty, frequency_penalty; i32 top_k, repeat_last_n; u64 seed, draws; u64 count and
// that many (i32 token, f32 bias); u64 count and that many f32 logits, 0 or vocab_size of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "library/handles.h"

namespace moeflux {

struct SnapshotExtra {
  SamplerState sampler;
  std::vector<float> logits;
};

std::vector<std::byte> pack_extra(const SamplerState& sampler, std::span<const float> logits);
/// Fails with kUnsupported for another version, kCorruption for bytes that are no whole extra, and
/// kInvalidArgument for options that cannot be.
Result<SnapshotExtra> unpack_extra(std::span<const std::byte> bytes, int64_t vocab_size);

}  // namespace moeflux
