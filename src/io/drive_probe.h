// How fast a drive delivers blobs of one size, by the number of blobs in flight.
#pragma once

#include <vector>

#include "io/async_reader.h"

namespace moeflux {

struct DriveProbeOptions {
  uint64_t blob_bytes = 0;
  /// Blobs in flight, ascending.
  std::vector<int> depths = {1, 2, 4, 8, 16, 32};
  /// For all depths together. Each also ends when it has read its share of `bytes_max`.
  double seconds = 1.0;
  uint64_t bytes_max = uint64_t{4} << 30;
  /// Chooses the offsets, which are multiples of kDirectAlignment. One seed, one list of offsets.
  uint64_t seed = 1;
};

struct DriveProbePoint {
  int depth = 0;
  uint64_t blobs = 0;
  double bytes_per_second = 0;
  double blob_seconds_mean = 0;  // from submission to arrival
};

struct DriveProbe {
  std::vector<DriveProbePoint> points;
  double bytes_per_second = 0;  // the best of the points
  int depth = 0;                // the smallest within 5 % of the best
};

/// Reads random blobs with nothing else in flight. Fails with kInvalidArgument when the file cannot
/// hold a blob or the options are out of range, and with the first failure of a read.
Result<DriveProbe> probe_drive(AsyncReader& reader, const File& file,
                               const DriveProbeOptions& options);

/// best and depth from the points: the part of a probe that is arithmetic.
void summarise(DriveProbe& probe);

}  // namespace moeflux
