// Counters as text for Prometheus, under the names of llama.cpp and vLLM, which routers read, and
// our own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "chat/open_model.h"
#include "schedule/scheduler.h"

namespace moeflux::serve {

/// How often a path was asked for.
struct AskedCount {
  std::string method;
  std::string path;
  uint64_t count = 0;
};

std::string metrics_text(const SchedulerCounters& texts, const ModelCounters& model,
                         const std::vector<AskedCount>& asked);

struct Slots {
  int count = 0;
  int64_t context_length = 0;    // of each
  std::string_view client = {};  // the one that asks; numbers of others are not for it
};
/// llama.cpp's /slots: the texts that have begun, and places that nobody has.
Json slots_json(const std::vector<ActiveText>& texts, const Slots& slots);

}  // namespace moeflux::serve
