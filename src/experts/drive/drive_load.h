// How busy decode keeps the drive, from what a store sees: the bytes each layer asked for, how long
// a layer takes, and how fast reads come that somebody waited for. Knows no clock: times are given.
#pragma once

#include <cstdint>

namespace moeflux {

/// Recent averages per visit of a layer in decode.
struct DriveLoad {
  double utilisation = 1.0;   // share of the time that the router's experts keep the drive busy
  double spare_reads = 0.0;   // experts that it could read in the rest
  double read_seconds = 0.0;  // of one expert
};

/// Thread-compatible. Averages fade with about twenty visits.
class DriveMeter {
 public:
  /// Call after waiting for reads: `seconds` is then the drive's time, not the engine's.
  void read(uint64_t bytes, double seconds);
  /// A layer's visit asked for `bytes`, cached ones not counted, read early or not.
  void visit(uint64_t bytes, double seconds);

  /// Fully loaded until both kinds have been seen: nothing is known to be free.
  DriveLoad load(uint64_t expert_bytes) const;
  double bytes_per_second() const;

 private:
  double read_bytes_ = 0.0;
  double read_seconds_ = 0.0;
  double visit_bytes_ = 0.0;
  double visit_seconds_ = 0.0;
};

}  // namespace moeflux
