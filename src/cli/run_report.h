// What `moeflux run` says after the text: one line for people, the same as JSON for programs.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "chat/text_generator.h"

namespace moeflux {

std::string run_statistics_line(const GenerateResult& result, uint64_t peak_memory_bytes);
/// Bytes, seconds and shares, unrounded; of a phase without tokens or reads, rates are 0.
Json run_statistics_json(const GenerateResult& result, uint64_t peak_memory_bytes);

}  // namespace moeflux
