// How fast a device reads its memory, the bound that token generation is held against, and the
// host's over its bus.
#pragma once

#include <cstdint>

#include "backend/device.h"
#include "base/result.h"

namespace moeflux {

struct BandwidthProbe {
  /// Far beyond any last-level cache; halved until it is a quarter of available memory, the
  /// device's own if it has any.
  uint64_t buffer_bytes = uint64_t{1} << 30;
  double seconds = 1.0;  // passes are made until this time is over; two at least
};

/// Bytes per second of the best of several passes over a buffer, with the device's own threads and
/// widest loads: products of one vector with an f32 matrix, where arithmetic is a small part. Fails
/// with kResourceExhausted when the buffer cannot be had.
Result<double> measure_read_bandwidth(Device& device, const BandwidthProbe& probe);

/// Bytes per second of the best of several copies from the host's memory to the device's own. Fails
/// with kUnsupported where the device copies nothing beside its work, with kResourceExhausted when
/// the buffers cannot be had.
Result<double> measure_bus_bandwidth(Device& device, const BandwidthProbe& probe);

}  // namespace moeflux
