// The lease of a store that has all of a layer's experts where the device reads them.
#pragma once

#include <span>
#include <utility>

#include "experts/expert_store.h"

namespace moeflux {

/// Delivers at once what the device computes, then what a helper does. Both must outlive it.
class WholeLease : public ExpertLease {
 public:
  explicit WholeLease(std::span<const ExpertWeights> own = {},
                      std::span<const ExpertWeights> of_helper = {})
      : own_(own), of_helper_(of_helper) {}
  Result<std::span<const ExpertWeights>> wait_some() override {
    if (!own_.empty()) return std::exchange(own_, {});
    site_ = ExpertSite::kHelper;
    return std::exchange(of_helper_, {});
  }

 private:
  std::span<const ExpertWeights> own_;
  std::span<const ExpertWeights> of_helper_;
};

}  // namespace moeflux
