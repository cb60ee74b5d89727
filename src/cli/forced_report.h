// Forced texts as a table, JSON or CSV: how far drafts take each, and how fast.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/drafts/draft_options.h"
#include "cli/bench_report.h"
#include "lab/forced_text.h"

namespace moeflux {

/// One text on one model.
struct ForcedResult {
  BenchResult of;  // the model, device and time; without a run
  std::string file;
  int64_t prompt_tokens = 0;
  int64_t written_tokens = 0;
  DraftOptions drafts;  // those of pairs.with
  ForcedPairs pairs;    // at least one
};

/// The parts of a file, in tokens of the model in `directory`. Errors name the file.
Result<std::vector<ForcedPart>> read_forced_text(const std::string& file,
                                                 const std::string& directory);

/// Counts are those of the last pair: with DraftMode::kAuto they follow from times.
std::string render_forced(std::span<const ForcedResult> results, BenchFormat format);

}  // namespace moeflux
