// Which experts a model used so far, kept in a file between runs: a weak hint for a cold cache,
// nothing more, because what one text uses says little of the next.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "experts/expert_cache.h"

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

  /// Adds what the cache has counted.
  void add(const ExpertCache& cache);
  /// Ranks the cache's experts as a prompt of a few tokens would. Fails with kInvalidArgument when
  /// the profile's shape is not the cache's.
  Status seed(ExpertCache& cache) const;
};

}  // namespace moeflux
