#include "sampling/candidates.h"

#include <algorithm>

#include "base/portable_math.h"

namespace moeflux {

const TokenLogit& Candidates::best() const {
  return *std::min_element(list.begin(), list.end(), is_better);
}

CandidateSums sums_of(const Candidates& candidates) {
  CandidateSums sums{.highest = candidates.best().logit};
  double weighted = 0.0;
  for (const TokenLogit& c : candidates.list) {
    const double distance = candidates.distance(c, sums.highest);
    const double weight = portable_exp(distance);
    sums.total += weight;
    if (weight > 0.0) weighted += weight * distance;  // the distance may be minus infinity
  }
  sums.mean_distance = weighted / sums.total;
  return sums;
}

}  // namespace moeflux
