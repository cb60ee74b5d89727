// The lease of a store that has all of a layer's experts where the device reads them.
#pragma once

#include <span>
#include <utility>

#include "experts/expert_store.h"

namespace moeflux {

/// Delivers them at once. They must outlive it.
class WholeLease : public ExpertLease {
 public:
  explicit WholeLease(std::span<const ExpertWeights> experts) : experts_(experts) {}
  Result<std::span<const ExpertWeights>> wait_some() override {
    return std::exchange(experts_, {});
  }

 private:
  std::span<const ExpertWeights> experts_;
};

}  // namespace moeflux
