// The routes of one text's tokens, for its client: the experts that each layer chose, the bytes
// read for them, and the time that the step waited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/ids.h"
#include "experts/route_observer.h"

namespace moeflux {

/// One layer's choice for one token, best first.
struct LayerChoice {
  LayerId layer{};
  std::vector<int32_t> experts = {};
  std::vector<float> weights = {};
  std::vector<int32_t> missed = {};  // of these, read for this token
};

/// The costs of the step that evaluated a token, which the texts of the step share.
struct StepCosts {
  uint64_t bus_bytes = 0;
  uint64_t stall_us = 0;
  uint64_t step_us = 0;
};

struct TokenRoutes {
  int64_t position = 0;
  uint64_t read_bytes = 0;  // from the drive, for experts that this text asked for first
  StepCosts costs = {};
  std::vector<LayerChoice> layers = {};
};

/// Thread-safe. Tokens beyond the memory are counted and dropped.
class RouteRecord {
 public:
  explicit RouteRecord(size_t bytes_max) : bytes_max_(bytes_max) {}

  // --- The scheduler's thread ---

  /// A layer's routes of the decoded token at hand, the last one of `routes`; `bytes` read for the
  /// misses.
  void add(const LayerRoutes& routes, std::span<const ExpertId> misses, uint64_t bytes);
  void end_token(const StepCosts& costs);
  /// It has failed: its routes are forgotten.
  void drop_token() { token_ = {}; }

  // --- Any thread ---

  std::vector<TokenRoutes> tokens() const;
  uint64_t dropped() const;

 private:
  const size_t bytes_max_;
  TokenRoutes token_;         // at hand
  size_t bytes_ = 0;          // of tokens_
  mutable std::mutex mutex_;  // guards what follows
  std::vector<TokenRoutes> tokens_;
  uint64_t dropped_ = 0;
};

}  // namespace moeflux
