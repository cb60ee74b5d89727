#include "cli/plan/plan_speeds.h"

#include "backend/cpu/cpu_device.h"
#include "plan/machine_probe.h"
#include "plan/memory_bandwidth.h"

namespace moeflux {
namespace {

// PCIe 4 x16, and memory of a GPU of the middle class.
constexpr double kAssumedBus = 25e9;
constexpr double kAssumedDeviceMemory = 400e9;
// An H200's for each byte that its memory gives: 79e12 in prompts of 4096 tokens of a model of 35
// billion parameters, at 27,791 tokens a second, and 4.3e12 bytes.
constexpr double kAssumedMultiplyAdds = 18.4;

Result<Speed> find_drive(const PlanOptions& options, const LoadedModel& model, bool reads_layers) {
  if (options.drive_gb) return Speed{*options.drive_gb * 1e9, "given"};
  const bool is_dense = model.experts.num_experts_total() == 0;
  if (model.index.num_files() == 0 || (is_dense && !reads_layers)) {
    return Speed{kAssumedDrive, "assumed; see --drive"};
  }
  if (is_dense) {
    MF_ASSIGN_OR_RETURN(const double measured,
                        probe_layer_reads(model, options.model.engine.expert_io, kProbeSeconds));
    return Speed{measured, "measured"};
  }
  MF_ASSIGN_OR_RETURN(const DriveProbe probe,
                      probe_expert_reads(model, options.model.engine.expert_io, kProbeSeconds));
  return Speed{probe.bytes_per_second, "measured"};
}

// The given speed, or that of the device's memory; `device` may be null where nothing is
// measured.
Result<Speed> find_memory(const std::optional<double>& given_gb, Device* device) {
  if (given_gb) return Speed{*given_gb * 1e9, "given"};
  MF_ASSIGN_OR_RETURN(const double measured,
                      measure_read_bandwidth(*device, {.seconds = kProbeSeconds / 2}));
  return Speed{measured, "measured"};
}

// As find_memory(); what has no bus of its own is described by one that is assumed.
Result<Speed> find_bus(const PlanOptions& options, Device* device) {
  if (options.bus_gb) return Speed{*options.bus_gb * 1e9, "given"};
  if (device == nullptr || !device->part(0).copies_beside()) {
    return Speed{kAssumedBus, "assumed; see --pcie"};
  }
  MF_ASSIGN_OR_RETURN(const double measured,
                      measure_bus_bandwidth(device->part(0), {.seconds = kProbeSeconds / 4}));
  return Speed{measured, "measured"};
}

Result<Speed> find_arithmetic(const PlanOptions& options, Device* device) {
  if (options.arithmetic_g) return Speed{*options.arithmetic_g * 1e9, "given"};
  MF_ASSIGN_OR_RETURN(const double measured, measure_multiply_adds(*device, kProbeSeconds / 2));
  return Speed{measured, "measured"};
}

}  // namespace

Result<HostSpeeds> find_speeds(const PlanOptions& options, const LoadedModel& model,
                               const Result<std::unique_ptr<Device>>& device, bool reads_layers) {
  HostSpeeds speeds;
  MF_ASSIGN_OR_RETURN(speeds.drive, find_drive(options, model, reads_layers));
  if (!device.ok() && !(options.memory_gb && options.arithmetic_g)) return device.error();
  Device* const here = device.ok() ? device->get() : nullptr;
  MF_ASSIGN_OR_RETURN(speeds.memory, find_memory(options.memory_gb, here));
  MF_ASSIGN_OR_RETURN(speeds.arithmetic, find_arithmetic(options, here));
  return speeds;
}

Result<TierMachine> find_tier_machine(const PlanOptions& options, const LoadedModel& model,
                                      uint64_t device_bytes, Device* here) {
  TierMachine machine{.device_bytes = device_bytes};
  machine.threads =
      options.model.device.threads > 0 ? options.model.device.threads : default_cpu_threads();
  MF_ASSIGN_OR_RETURN(machine.drive, find_drive(options, model, /*reads_layers=*/false));
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<Device> host,
                      make_cpu_device({.threads = options.model.device.threads}));
  MF_ASSIGN_OR_RETURN(machine.memory, find_memory(options.memory_gb, host.get()));
  MF_ASSIGN_OR_RETURN(machine.bus, find_bus(options, here));
  if (here != nullptr) {
    // The first stands for several, which work in turn.
    MF_ASSIGN_OR_RETURN(machine.device, find_memory(options.device_memory_gb, &here->part(0)));
    MF_ASSIGN_OR_RETURN(machine.arithmetic, find_arithmetic(options, &here->part(0)));
    return machine;
  }
  machine.device = options.device_memory_gb
                       ? Speed{*options.device_memory_gb * 1e9, "given"}
                       : Speed{kAssumedDeviceMemory, "assumed; see --vram-bandwidth"};
  machine.arithmetic =
      options.arithmetic_g
          ? Speed{*options.arithmetic_g * 1e9, "given"}
          : Speed{kAssumedMultiplyAdds * machine.device.per_second, "assumed; see --arithmetic"};
  return machine;
}

}  // namespace moeflux
