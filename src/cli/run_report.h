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

}  // namespace moeflux
