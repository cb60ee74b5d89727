// Divides a model between a device's memory and the host's, where the device does not hold it all.
// A device that has too little gives up, in this order: experts near it, the embedding's table,
// pages of keys and values, the head, layers' weights from the last. A model without experts gives
// up networks of some layers before the head, evenly among the others: a processor may compute them
// where they lie, and copies of them have time to come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "load/model_loader.h"
#include "plan/memory_plan.h"

namespace moeflux {

/// The shares of a device's memory, in bytes.
struct DeviceNeeds {
  uint64_t free_bytes = 0;
  uint64_t scratch_bytes = 0;      // of a step, with what goes in, logits and listed_keys_bytes()
  uint64_t dense_kept_bytes = 0;   // of dense weights that do not leave: norms and other vectors
  uint64_t state_kept_bytes = 0;   // of a sequence's state: what every step writes or reads again
  uint64_t state_pages_bytes = 0;  // of keys and values of a full context beside it
  uint64_t experts_least_bytes = 0;
  /// Modules, and networks, in the order in which they leave; the first is looked up if
  /// `has_table`: a token reads one row of it.
  std::vector<uint64_t> dense_parts;
  bool has_table = false;
};

struct DeviceSplit {
  size_t parts_on_host = 0;       // the first of dense_parts
  uint64_t state_page_bytes = 0;  // that are left for pages, no more than they need
};

/// Fails with kResourceExhausted, naming each need, where everything that may leave has left. The
/// weights of layers are read by every token, old pages only by texts that are so long: pages leave
/// before weights. Among pages it does not matter which: a token reads them all.
Result<DeviceSplit> split_device(const DeviceNeeds& needs);

/// Left free of a device's own memory: an eighth, at most kDeviceReserveBytes, at least a MiB.
uint64_t device_reserve(uint64_t free_bytes);

struct DevicePlanRequest {
  uint64_t free_bytes = 0;
  /// The free bytes of each of several devices, and which of them has each layer.
  std::vector<uint64_t> free_by_part = {};
  std::vector<size_t> part_of_layer = {};
  /// These divide the heads of keys and values: how many of a layer's each has. Null: they do not.
  std::function<std::vector<int64_t>(LayerId layer, int64_t heads)> heads_by_part = {};
  int64_t context_length = 0;
  int64_t step_tokens = 0;
  bool step_may_shrink = false;              // rather than refuse, take fewer tokens in a step
  bool copies_beside = false;                // see Device
  std::optional<uint64_t> near_cache_bytes;  // as the user asked
};

/// The share of one of several devices, or of the only one.
struct PartPlan {
  uint64_t dense_bytes = 0;    // with its copy of what belongs to no layer
  uint64_t scratch_bytes = 0;  // see DeviceNeeds
  uint64_t state_bytes = 0;
  uint64_t state_kept_bytes = 0;  // of these; see DeviceNeeds
  uint64_t reserve_bytes = 0;
};

struct DevicePlan {
  int64_t step_tokens = 0;
  DeviceShare share;
  DensePlaces dense;
  uint64_t listed_bytes = 0;    // of share.scratch_bytes; see listed_keys_bytes()
  uint64_t networks_bytes = 0;  // of share.scratch_bytes: copies of networks; see FarNetworks
  std::vector<PartPlan> parts;  // one at least
};

/// The bytes that a step takes of each of several devices; see DeviceNeeds. Fails as dry_run().
Result<uint64_t> part_scratch_bytes(const LoadedModel& counted, int64_t context_length,
                                    int64_t step_tokens);

/// `counted` has the sizes and cache types of the model that will be loaded. Fails as
/// split_device().
Result<DevicePlan> plan_device(const LoadedModel& counted, const DevicePlanRequest& request);

}  // namespace moeflux
