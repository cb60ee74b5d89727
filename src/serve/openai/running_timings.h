// llama.cpp's timings of an answer that goes on, for timings_per_token.
#pragma once

#include <chrono>

#include "base/json.h"
#include "schedule/text_request.h"

namespace moeflux::serve {

class RunningTimings {
 public:
  void on_progress(const PromptProgress& progress);
  /// The members of timings_json(), as far as they are known with one more delta.
  Json on_delta();
  /// The same, without one.
  Json so_far() const;

 private:
  TextStatistics so_far_;
  std::chrono::steady_clock::time_point first_;
};

}  // namespace moeflux::serve
