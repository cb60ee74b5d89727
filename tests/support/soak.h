// How long a test of many rounds goes on: a few in the ordinary suite, more where the environment
// says so (make test-tsan, make test-all).
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace moeflux::testing {

/// The number that the environment has under a name; none where it has not.
inline std::optional<uint64_t> number_from(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

/// A few rounds, and as many seconds as MOEFLUX_TEST_SOAK_SECONDS says.
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
