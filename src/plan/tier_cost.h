// The cost of a step on a device with memory of its own, whose experts lie there, in the host's
// memory behind a bus, and on the drive. Arithmetic only; knows no model and no machine.
#pragma once

#include <cstdint>

#include "plan/cost_model.h"

namespace moeflux {

struct TierSpeeds {
  double device_bytes_per_second = 0.0;   // of its own memory, read by all of it
  double bus_bytes_per_second = 0.0;      // of copies of megabytes from pinned memory
  double memory_bytes_per_second = 0.0;   // of the host's
  double drive_bytes_per_second = 0.0;    // of random reads of whole experts
  double multiply_adds_per_second = 0.0;  // of the device, of many tokens' matrix products
  double helper_bytes_per_second = 0.0;   // of weights a processor multiplies; 0: all that it reads
};

/// Where a step finds the bytes of the experts that it uses; the shares add up to 1.
struct TierShares {
  double near = 1.0;   // in the device's memory
  double far = 0.0;    // in the host's
  double drive = 0.0;  // to be read into the host's
};

/// How what is not near reaches the products.
enum class FarReads : uint8_t {
  kFetched,  // brought into a landing before the products of a token read it
  kRing,     // copied ahead of a prompt
  kInPlace,  // by the products, after the host has learned what routers chose
};

struct TierStep {
  StepWork work;
  TierShares found;
  FarReads far_reads = FarReads::kFetched;
  /// The share of what is far that a processor computes where it lies, in turn with the device.
  double helped = 0.0;
  /// How often the products read an expert's weights: once for each tile of tokens.
  double passes = 1.0;
  /// The share of the tiles of experts' products that tokens fill.
  double tiles_filled = 1.0;
  /// Experts that change places meanwhile go over the bus with those that are read.
  bool experts_move = false;
};

/// A layer of a decoded token takes this beside reading its bytes: measured on an H200.
constexpr double kLayerSeconds = 27e-6;

enum class TierLimit : uint8_t { kDevice, kLaunches, kCompute, kBus, kMemory, kDrive };

struct TierCost {
  double device_seconds = 0.0;   // weights and state from the device's memory
  double launch_seconds = 0.0;   // of layers, and of the host's part in them
  double compute_seconds = 0.0;  // matrix products
  double bus_bytes = 0.0;
  double bus_seconds = 0.0;
  double memory_seconds = 0.0;  // the host's, read for the bus, written and read for the drive
  double drive_bytes = 0.0;
  double drive_seconds = 0.0;
  /// Experts come while experts compute; what all tokens need does not wait for them.
  double total_seconds = 0.0;
  TierLimit limit = TierLimit::kDevice;  // the largest part
};

/// Speeds must be positive.
TierCost cost_on_tiers(const TierStep& step, const TierSpeeds& speeds);

}  // namespace moeflux
