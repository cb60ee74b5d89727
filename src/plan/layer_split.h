// Divides the layers of a model between devices that compute it together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "base/result.h"
#include "load/model_loader.h"

namespace moeflux {

/// Bytes of a layer.
struct SplitLayer {
  uint64_t dense = 0;
  uint64_t head = 0;           // of these, what a token reads and a prompt's do not
  uint64_t state = 0;          // of a sequence of the planned length
  uint64_t experts = 0;        // all of them,
  uint64_t token_experts = 0;  // and those that a token reads
};

/// One of the devices.
struct CardMemory {
  uint64_t free_bytes = 0;
  uint64_t taken_bytes = 0;       // of these, by what belongs to no layer, and a reserve
  double bytes_per_second = 0.0;  // of its memory; 0: unknown, and that of all alike
};

/// The device of each layer, in order, so that a request costs least. In its prompt devices work at
/// once on chunks that follow each other, and the slowest counts; in its text they work in turn.
/// Experts beyond a device's memory cost what the bus to the host takes. Layers that
/// share weights, or read the state of another beside weights, are together.
std::vector<size_t> split_layers(const ModelSpec& spec, std::span<const SplitLayer> layers,
                                 std::span<const CardMemory> cards);

/// Sizes of a model's layers, and of the table that lies with the first, which is in none. A token
/// reads a row of it.
struct SplitSizes {
  std::vector<SplitLayer> layers;
  uint64_t table = 0;
};
SplitSizes split_sizes(const LoadedModel& counted, int64_t context_length, int64_t step_tokens);

struct LayerSplitRequest {
  std::vector<uint64_t> free_bytes = {};      // of each device
  std::vector<double> bytes_per_second = {};  // the same; see CardMemory
  int64_t context_length = 0;
  int64_t step_tokens = 0;
};
/// The same of a model. `counted` has the sizes and cache types of the model that will be loaded.
/// Fails as dry_run().
Result<std::vector<size_t>> split_layers(const LoadedModel& counted,
                                         const LayerSplitRequest& request);

/// Handing a token's activations from one device to the next takes so long: two H200s gave 491
/// tokens a second where one gave 494 (benchmarks/results/raw, 2026-11-28-split-depth).
constexpr double kHandOverSeconds = 0.02e-3;

/// Whether a model should lie on all of several devices rather than on the first alone: its text is
/// about as fast, and text or a prompt of many chunks is expected to gain. Fails as dry_run().
Result<bool> gains_from_all(const LoadedModel& counted, const LayerSplitRequest& request);
/// The same of a model that nobody has opened yet. Fails as load_model() and dry_run().
Result<bool> gains_from_all(const std::string& directory, Device& devices, const ModelUse& use);

}  // namespace moeflux
