#include "sampling/mirostat.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/portable_math.h"
#include "sampling/truncation.h"

namespace moeflux {
namespace {

constexpr double kLn2 = 0.6931471805599453;
constexpr size_t kRanksMax = 100;

/// The exponent s of probability ~ 1 / rank^s, by least squares over the steps between neighbours;
/// the candidates are in order of rank as far as is looked at.
double zipf_exponent(const Candidates& candidates) {
  const std::vector<TokenLogit>& list = candidates.list;
  double products = 0;
  double squares = 0;
  for (size_t i = 0; i + 1 < std::min(list.size(), kRanksMax); ++i) {
    const auto rank = static_cast<double>(i + 1);
    const double in_rank = portable_log((rank + 1) / rank);
    const double in_probability = candidates.distance(list[i], list[i + 1].logit);
    products += in_rank * in_probability;
    squares += in_rank * in_rank;
  }
  return products / squares;
}

/// log(x / (1 - exp(-x))), also where x is 0.
double log_of_ratio(double x) {
  if (std::abs(x) < 1e-5) return x / 2;  // less than 1e-11 off
  if (x < 0) return x + log_of_ratio(-x);
  return portable_log(x / (1.0 - portable_exp(-x)));
}

}  // namespace

void keep_for_mirostat(Candidates& candidates, double mu) {
  std::vector<TokenLogit>& list = candidates.list;
  std::erase_if(
      list, [](const TokenLogit& c) { return c.logit == -std::numeric_limits<float>::infinity(); });
  if (list.size() < 2) return;
  const size_t ranks = std::min(list.size(), kRanksMax);
  std::partial_sort(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(ranks), list.end(),
                    is_better);
  // k^s = (s - 1) 2^mu / (1 - n^(1 - s)), in logarithms.
  const double s = zipf_exponent(candidates);
  const double log_n = portable_log(static_cast<double>(list.size()));
  const double power = mu * kLn2 + log_of_ratio((s - 1) * log_n) - portable_log(log_n);
  if (power >= s * log_n) return;  // all, also where s is 0
  keep_top_k(candidates, power <= 0 ? 1 : static_cast<size_t>(portable_exp(power / s)));
}

void keep_for_mirostat_2(Candidates& candidates, double mu) {
  const TokenLogit best = candidates.best();
  const double log_total = portable_log(sums_of(candidates).total);
  std::erase_if(candidates.list, [&](const TokenLogit& c) {
    return c.id != best.id && (log_total - candidates.distance(c, best.logit)) / kLn2 > mu;
  });
}

}  // namespace moeflux
