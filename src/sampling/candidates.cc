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

float confidence_of(std::span<const TokenLogit> best) {
  double sum = 0.0;
  for (const TokenLogit& one : best) sum += portable_exp(double{one.logit} - best.front().logit);
  return sum >= 1.0 ? static_cast<float>(1.0 / sum) : 0.0f;  // or the sum is not a number
}

}  // namespace moeflux
