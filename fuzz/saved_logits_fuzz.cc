// The bytes of saved log-probabilities: refused, or tokens within the vocabulary and rows that can
// be scored.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "lab/saved_logits.h"
#include "sampling/text_score.h"
#include "tests/support/io/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto saved = moeflux::SavedLogits::open(
      std::make_unique<moeflux::MemoryFile>("fuzz", std::as_bytes(std::span(data, size))));
  if (!saved.ok()) return 0;
  const int64_t window = saved->window();
  std::vector<float> row(static_cast<size_t>(saved->vocab_size()));
  moeflux::DivergenceScore score;
  for (int64_t i = 0; i < saved->windows(); ++i) {
    for (int64_t at = moeflux::first_scored_position(window); at < window - 1; ++at) {
      if (!saved->read_row(i, at, row).ok()) continue;
      const auto next = static_cast<size_t>(i * window + at + 1);
      if (moeflux::surprise(row, saved->tokens()[next]) < -0.02) std::abort();
      score.add(row, row);
    }
  }
  if (score.tokens() > 0 && !(score.same_top_share() == 1.0)) std::abort();
  return 0;
}
