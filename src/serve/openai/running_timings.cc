#include "serve/openai/running_timings.h"

#include "serve/answer/answer_json.h"

namespace moeflux::serve {

void RunningTimings::on_progress(const PromptProgress& progress) {
  so_far_.prompt_tokens = progress.processed;
  so_far_.cached_tokens = progress.cached;
  so_far_.prefill_seconds = progress.seconds;
}

Json RunningTimings::on_delta() {
  const auto now = std::chrono::steady_clock::now();
  if (so_far_.generated_tokens++ == 0) first_ = now;
  so_far_.decode_seconds = std::chrono::duration<double>(now - first_).count();
  return so_far();
}

Json RunningTimings::so_far() const { return timings_json(so_far_); }

}  // namespace moeflux::serve
