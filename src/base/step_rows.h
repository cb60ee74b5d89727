// The rows of a step: their sequences, positions and phase.
#pragma once

#include <cstdint>
#include <span>

namespace moeflux {

/// kPrompt: a text is taken in. kDecode: a text goes on, token by token. The caller states it: it
/// decides what counts as use of an expert, never a result.
enum class StepPhase : uint8_t { kPrompt = 0, kDecode = 1 };

/// Rows of a step that are consecutive tokens of one sequence. In a list, rows lie behind those of
/// the sequences before, and decode comes before prompts.
struct StepRows {
  int64_t rows = 0;
  int64_t position = 0;  // of the first one in its sequence
  StepPhase phase = StepPhase::kPrompt;
};

/// How many of them are of decode.
constexpr int64_t decoded_rows(std::span<const StepRows> rows) {
  int64_t count = 0;
  for (const StepRows& part : rows) {
    if (part.phase == StepPhase::kDecode) count += part.rows;
  }
  return count;
}

}  // namespace moeflux
