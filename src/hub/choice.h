// The file of a repository that suits a machine, by forecasts that somebody else makes.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/result.h"
#include "hub/repository.h"

namespace moeflux::hub {

struct SetForecast {
  bool fits = false;
  double tokens_per_second = 0.0;
};

struct SetChoice {
  FileSet set;
  std::string reason;
};

/// The sets are sorted, smallest first. Chosen is the largest of 4 to 8 bits that makes 10 tokens a
/// second, else the smallest of these that fits, else the largest of fewer bits that fits. Asks for
/// few forecasts: a larger file is taken to be slower. Fails with kResourceExhausted where none
/// fits, and as `forecast` does.
Result<SetChoice> choose_set(std::span<const FileSet> sets,
                             const std::function<Result<SetForecast>(const FileSet&)>& forecast);

}  // namespace moeflux::hub
