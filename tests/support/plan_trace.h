// A platform that computes nothing and writes down every plan: what a GPU would have been told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/gpu/launch/executor.h"

namespace moeflux::gpu {

/// Copies between the host and the device.
struct CopyCount {
  uint64_t copies = 0;
  uint64_t bytes = 0;
};

/// One line per plan, write and read of every executor of the platform, in order; and the plans.
struct PlanLog {
  std::vector<std::string> lines;
  std::vector<Plan> plans;
  CopyCount written;
  CopyCount read;
  /// As a runtime with graphs counts: runs that it has recorded, and launches beside them.
  uint64_t graphs = 0;
  uint64_t single_launches = 0;
  std::vector<size_t> runs;  // launches of each, those beside graphs too
  uint64_t waits = 0;        // for an event
};

/// Memory is the host's, so that weights can be loaded; reads give what was loaded or zeros. The
/// log must outlive the platform. One executor at a time. With `free_bytes`, as a platform with as
/// much memory of its own.
std::unique_ptr<Platform> make_plan_trace_platform(PlanLog& log, bool matrix_units = false,
                                                   std::optional<uint64_t> free_bytes = {});

}  // namespace moeflux::gpu
