// The plan of a model in short, for commands that show several or that ask before a download.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace moeflux {

/// Speeds that are known; the others are measured.
struct PlanSpeeds {
  std::optional<double> drive_gb;
  std::optional<double> memory_gb;
  std::optional<double> arithmetic_g;
  std::optional<double> device_memory_gb;
};

struct PlanSummary {
  bool fits = false;
  uint64_t needed_bytes = 0;   // of memory, for everything but experts
  uint64_t experts_bytes = 0;  // of all experts
  bool on_device = false;      // the memory is that of a GPU
  bool reads_drive = false;    // experts come from the drive, as memory does not hold them all
  double tokens_low = 0.0;     // of natural text, tokens a second
  double tokens_high = 0.0;
  PlanSpeeds speeds;  // for the plan of another model on the same machine
};

/// The plan of `moeflux plan -m PATH` with no other option. Fails as it does.
Result<PlanSummary> summarize_plan(const std::string& path, const PlanSpeeds& speeds);

}  // namespace moeflux
