#include "sampling/truncation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/portable_math.h"

namespace moeflux {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Keeps candidates from the first one on, until their weights' sum is enough. A heap yields them
/// in order without sorting the long tail, which is rarely reached.
template <typename IsBefore, typename IsEnough>
void keep_first(Candidates& candidates, double highest, IsBefore is_before, IsEnough is_enough) {
  std::vector<TokenLogit>& list = candidates.list;
  const auto is_after = [&](const TokenLogit& a, const TokenLogit& b) { return is_before(b, a); };
  std::make_heap(list.begin(), list.end(), is_after);
  auto heap_end = list.end();
  double sum = 0;
  while (heap_end != list.begin()) {
    std::pop_heap(list.begin(), heap_end, is_after);
    --heap_end;  // popped ones stand behind the heap, the first one last
    sum += portable_exp(candidates.distance(*heap_end, highest));
    if (is_enough(sum)) break;
  }
  std::reverse(heap_end, list.end());
  list.erase(list.begin(), heap_end);
}

}  // namespace

void keep_top_k(Candidates& candidates, size_t k) {
  std::vector<TokenLogit>& list = candidates.list;
  if (k >= list.size()) return;
  std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(k), list.end(),
                   is_better);
  list.resize(k);
  std::sort(list.begin(), list.end(), is_better);
}

void keep_top_p(Candidates& candidates, double p) {
  const double highest = candidates.best().logit;
  double total = 0;
  for (const TokenLogit& c : candidates.list) {
    total += portable_exp(candidates.distance(c, highest));
  }
  keep_first(candidates, highest, is_better, [&](double sum) { return sum >= p * total; });
}

void keep_min_p(Candidates& candidates, double min_p) {
  const double highest = candidates.best().logit;
  std::erase_if(candidates.list, [&](const TokenLogit& c) {
    return portable_exp(candidates.distance(c, highest)) < min_p;
  });
}

void keep_typical(Candidates& candidates, double p) {
  const CandidateSums sums = sums_of(candidates);
  // Surprise less entropy: log(total) is in both.
  const auto strangeness = [&](const TokenLogit& c) {
    return std::abs(sums.mean_distance - candidates.distance(c, sums.highest));
  };
  const auto is_nearer = [&](const TokenLogit& a, const TokenLogit& b) {
    const double of_a = strangeness(a);
    const double of_b = strangeness(b);
    return of_a != of_b ? of_a < of_b : is_better(a, b);
  };
  keep_first(candidates, sums.highest, is_nearer, [&](double sum) { return sum > p * sums.total; });
}

void keep_within_sigmas(Candidates& candidates, double n) {
  double sum = 0;
  double count = 0;
  for (const TokenLogit& c : candidates.list) {
    if (c.logit == -kInfinity) continue;
    sum += c.logit;
    ++count;
  }
  const double mean = sum / count;
  double squares = 0;
  for (const TokenLogit& c : candidates.list) {
    if (c.logit != -kInfinity) squares += (c.logit - mean) * (c.logit - mean);
  }
  const double least = candidates.best().logit - n * std::sqrt(squares / count);
  std::erase_if(candidates.list, [&](const TokenLogit& c) { return c.logit < least; });
}

void drop_top_choices(Candidates& candidates, double threshold) {
  const CandidateSums sums = sums_of(candidates);
  const auto is_top = [&](const TokenLogit& c) {
    return portable_exp(candidates.distance(c, sums.highest)) >= threshold * sums.total;
  };
  const TokenLogit* last = nullptr;
  for (const TokenLogit& c : candidates.list) {
    if (is_top(c) && (last == nullptr || is_better(*last, c))) last = &c;
  }
  if (last == nullptr) return;
  const TokenId kept = last->id;
  std::erase_if(candidates.list, [&](const TokenLogit& c) { return c.id != kept && is_top(c); });
}

double dynamic_temperature(const Candidates& candidates, const DynamicTemperature& options) {
  const double least = std::max(0.0, options.temperature - options.range);
  const double most = options.temperature + options.range;
  if (candidates.list.size() < 2) return options.temperature;
  const CandidateSums sums = sums_of(candidates);
  const double entropy = portable_log(sums.total) - sums.mean_distance;
  const double largest = portable_log(static_cast<double>(candidates.list.size()));
  const double share = std::clamp(entropy / largest, 0.0, 1.0);
  if (options.exponent == 0.0) return most;
  if (share == 0.0) return least;
  return least + (most - least) * portable_exp(options.exponent * portable_log(share));
}

}  // namespace moeflux
