// How fast a device can read its memory: the bound that token generation is held against.
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

}  // namespace moeflux
