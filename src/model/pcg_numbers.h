// PcgNumbers: the numbers that numpy's default generator (PCG64, seeded by SeedSequence) draws.
#pragma once

#include <cstdint>

namespace moeflux {

class PcgNumbers {
 public:
  /// As numpy.random.default_rng(seed).
  explicit PcgNumbers(uint64_t seed);

  uint64_t next();
  /// As integers(0, bound, dtype=int64), for a bound above 2^32.
  uint64_t below(uint64_t bound);

 private:
  __extension__ using Wide = unsigned __int128;
  void step();

  Wide state_ = 0;
  Wide increment_ = 0;
};

}  // namespace moeflux
