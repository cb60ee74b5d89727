// Records the experts that a model used so far, kept in a file between runs: a weak hint for a cold
// cache, nothing more, because the experts of one text say little of the next.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "experts/cache/expert_cache.h"
#include "experts/tiers/near_placement.h"

namespace moeflux {

struct UsageProfile {
  std::string model;
  uint64_t tokens = 0;                        // of decode that were counted
  std::vector<std::vector<uint64_t>> layers;  // uses of each expert; empty: no routed experts

  /// JSON. Fails with kCorruption naming what was found and what was expected.
  static Result<UsageProfile> parse(std::string_view text);
  static Result<UsageProfile> read(const std::string& path);
  std::string to_json() const;
  Status write(const std::string& path) const;
  /// True when it knows of no token.
  bool is_empty() const { return tokens == 0; }

  /// Adds what the cache or the placement has counted.
  void add(const ExpertCache& cache);
  void add(const NearPlacement& placement);
  /// Fails with kInvalidArgument when the profile is not of so many layers and experts.
  Status check(const ExpertShape& shape) const;
  /// Ranks the cache's experts as a prompt of a few tokens would; the shape must be the profile's.
  void seed(ExpertCache& cache) const;
  /// Scores experts as some tokens of decode would: about as many as the placement remembers.
  void seed(NearPlacement& placement) const;

 private:
  void add(const ExpertShape& shape, std::span<const uint64_t> uses, uint64_t more_tokens);
  void seed_layers(
      double seed_tokens,
      const std::function<void(LayerId, std::span<const double> uses)>& seed_layer) const;
};

}  // namespace moeflux
