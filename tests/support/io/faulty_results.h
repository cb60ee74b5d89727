// FaultyResults: what a system may answer to a read, more often than it does. From one seed: short
// reads, EINTR, EAGAIN, and EIO. Thread-safe; with several threads the seed fixes the sequence of
// answers, not who gets which.
#pragma once

#include <mutex>
#include <random>

#include "io/read_result_filter.h"

namespace moeflux {

struct FaultyResultsOptions {
  uint64_t seed = 1;
  double short_probability = 0;  // fewer bytes than came, at least one, of any number
  double eintr_probability = 0;
  double eagain_probability = 0;
  double eio_probability = 0;
};

class FaultyResults final : public ReadResultFilter {
 public:
  explicit FaultyResults(const FaultyResultsOptions& options)
      : options_(options), random_(options.seed) {}
  /// Bytes that are denied become 0xA5: who believes in them reads wrong ones.
  int64_t filter(std::span<const iovec> into, int64_t result) override;
  uint64_t falsified() const;

 private:
  FaultyResultsOptions options_;
  mutable std::mutex mutex_;  // guards everything below
  std::mt19937_64 random_;
  uint64_t falsified_ = 0;
};

}  // namespace moeflux
