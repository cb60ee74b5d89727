// How long a soak test goes on: a few rounds in the ordinary suite, and as many seconds as
// MOEFLUX_TEST_SOAK_SECONDS says where somebody sets it (make test-tsan).
#pragma once

#include <chrono>
#include <cstdlib>

namespace moeflux::testing {

class Soak {
 public:
  explicit Soak(int rounds_min) : rounds_min_(rounds_min) {
    const char* const text = std::getenv("MOEFLUX_TEST_SOAK_SECONDS");
    const double seconds = text == nullptr ? 0.0 : std::strtod(text, nullptr);
    end_ = Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  /// Begins the next round; false when it is enough.
  bool next() { return ++round_ <= rounds_min_ || Clock::now() < end_; }
  /// From 1.
  int round() const { return round_; }

 private:
  using Clock = std::chrono::steady_clock;
  int rounds_min_;
  int round_ = 0;
  Clock::time_point end_;
};

}  // namespace moeflux::testing
