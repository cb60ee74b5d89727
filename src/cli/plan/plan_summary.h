// The plan of a model in short, for commands that show several or that ask before a download.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
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

/// The JSON of `moeflux plan --json` on a machine that is described: {like, type, ctx_size,
/// ram_bytes, vram_bytes, drive_gb_s, ram_gb_s, vram_gb_s, pcie_gb_s, gmac_s}, of which ram_bytes
/// must be there. Measures nothing. `model` is the folder of the model where `like` is absent.
/// Fails with kInvalidArgument naming the member, and as `moeflux plan` does.
Result<Json> forecast_described(const Json& machine, const std::string& model);
/// Names that `like` may have.
std::vector<std::string> forecast_names();

}  // namespace moeflux
