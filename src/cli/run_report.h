// The statistics of `moeflux run`: one line for people, the same as JSON for programs.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "chat/session.h"

namespace moeflux {

struct RunStatistics {
  GenerateResult result;
  bool failed = false;  // an error ended the text, which the result does not know
  uint64_t seed = 0;
  uint64_t peak_memory_bytes = 0;
};

std::string run_statistics_line(const RunStatistics& run);
/// Bytes, seconds and shares, unrounded; of a phase without tokens or reads, rates are 0.
Json run_statistics_json(const RunStatistics& run);

/// "the context of 512 tokens is full; -c, --ctx-size raises it, up to 2048".
std::string context_full_line(int64_t context, int64_t longest);
/// The option or the event that ends a text for such a reason: "-n, --n-predict".
std::string cut_by(FinishReason reason, int64_t context, int64_t longest);

}  // namespace moeflux
