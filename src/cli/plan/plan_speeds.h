// The options of `moeflux plan`, and the speeds of its machine: given, measured or assumed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/device.h"
#include "cli/model_options.h"
#include "cli/plan/tier_report.h"
#include "plan/dense_stream.h"

namespace moeflux {

/// Speeds are in GB/s and billions of multiply-adds a second; those that are absent are measured or
/// assumed.
struct PlanOptions {
  ModelOptions model;
  std::string like;
  std::string memory;  // empty: what is free
  std::optional<double> drive_gb;
  std::optional<double> memory_gb;
  std::optional<double> arithmetic_g;
  std::vector<std::string> device_memory;  // of each GPU; empty: what the device has, if any
  std::optional<double> device_memory_gb;
  std::optional<double> bus_gb;
  int assume_bits = 4;
  std::string type;  // of a GGUF file; empty: none
  bool json = false;
};

/// Rate of a current laptop's drive, for where nobody states one and nothing can be measured.
inline constexpr double kAssumedDrive = 3e9;
/// How long a measurement takes, in seconds.
inline constexpr double kProbeSeconds = 1.0;

/// The speeds of a machine without a device that has memory of its own.
struct HostSpeeds {
  Speed drive;
  Speed memory;
  Speed arithmetic;
  double arranged_per_second = 0.0;  // of layers on the drive; see LayerSpeeds

  LayerSpeeds layers() const { return {drive.per_second, arranged_per_second}; }
  MachineSpeeds machine(const std::optional<DenseStream>& stream) const {
    return {stream ? layers().bytes_per_second(*stream) : drive.per_second, memory.per_second,
            arithmetic.per_second};
  }
};

/// Speeds that nobody gave are measured on `device`; fails with its error where there is none. The
/// drive is measured by reads of experts, or of layers where `reads_layers`.
Result<HostSpeeds> find_speeds(const PlanOptions& options, const LoadedModel& model,
                               const Result<std::unique_ptr<Device>>& device, bool reads_layers);
/// The machine of a device with memory of its own, which is measured. `here` is null for one that
/// is described: what nobody said of it is assumed. The host is this one unless it is described.
Result<TierMachine> find_tier_machine(const PlanOptions& options, const LoadedModel& model,
                                      uint64_t device_bytes, Device* here);

}  // namespace moeflux
