// The output of `moeflux plan` for a machine without a device that has memory of its own.
#pragma once

#include <optional>
#include <string>

#include "cli/plan/plan_speeds.h"
#include "plan/forecast.h"

namespace moeflux {

struct HostReport {
  std::string model;
  const LoadedModel* loaded = nullptr;
  int64_t context = 0;
  int64_t step_tokens = 0;  // of a prompt, evaluated together
  MemoryPlan plan;
  HostSpeeds speeds;
  Forecast forecast;
  std::optional<DenseStream> stream;  // of a model without experts that memory does not hold
};

std::string host_json(const HostReport& report);
std::string host_text(const HostReport& report);

}  // namespace moeflux
