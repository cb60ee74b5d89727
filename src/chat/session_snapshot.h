// The state of a session beside its sequence: the sampler and the last token's logits. Snapshots
// hold it as follows.
//
// Little-endian, without padding: u32 version (3); f32 temperature, top_p, min_p, repeat_penalty,
// presence_penalty, frequency_penalty; i32 top_k, repeat_last_n; u64 seed, draws; u64 count and
// that many (i32 token, f32 bias); u64 count and that many f32 logits, 0 or vocab_size of them.
//
// Version 1 ends here; what follows is then as it is by default. f32 typical_p, top_n_sigma,
// xtc_probability, xtc_threshold, dynatemp_range, dynatemp_exponent, mirostat_tau, mirostat_eta,
// dry_multiplier, dry_base; i32 mirostat, dry_allowed_length, dry_penalty_last_n; u8 whether there
// is a mirostat_mu, f64 that or 0. u64 count and that many steps of u8; u64 count and that many
// sequence breakers, each u64 bytes and these.
//
// Version 2 ends here, without a constraint. u8 kind (0 none, 1 JSON object, 2 JSON schema,
// 3 regular expression, 4 Lark), u64 bytes and its text, u64 where in the sequence it begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "constraint/constraint.h"
#include "sampling/sampler.h"

namespace moeflux {

/// Options and progress are all the state of a sampler whose history is the session's tokens.
struct SamplerState {
  SamplerOptions options = {};
  SamplerProgress progress = {};
};

/// The constraint on tokens sampled from a place of the sequence on.
struct SessionConstraint {
  OutputConstraint stated = {};
  int64_t begin = 0;
  std::shared_ptr<const Constraint> compiled = {};  // null: none; not in snapshots
};

/// A session without its sequence.
struct SessionExtra {
  SamplerState sampler;
  std::vector<float> logits = {};  // of the last token, [vocab_size]; empty: not known
  SessionConstraint constraint = {};
};

std::vector<std::byte> pack_extra(const SessionExtra& extra);
/// Fails with kUnsupported for another version, kCorruption for bytes that are no whole extra, and
/// kInvalidArgument for options that cannot be.
Result<SessionExtra> unpack_extra(std::span<const std::byte> bytes, int64_t vocab_size);

}  // namespace moeflux
