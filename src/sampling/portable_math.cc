#include "sampling/portable_math.h"

#include <cmath>
#include <limits>

namespace moeflux {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

}  // namespace

double portable_exp(double x) {
  constexpr double kLog2OfE = 1.4426950408889634;
  if (x < -700.0) return 0.0;
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  const double power = std::nearbyint(x * kLog2OfE);
  const double r = (x - power * kLn2High) - power * kLn2Low;  // |r| <= ln(2) / 2
  double sum = 1.0;
  for (int n = 14; n >= 1; --n) sum = 1.0 + sum * r / n;
  return std::ldexp(sum, static_cast<int>(power));
}

double portable_log(double x) {
  constexpr double kRootOfHalf = 0.7071067811865476;
  int power = 0;
  double m = std::frexp(x, &power);
  if (m < kRootOfHalf) {
    m *= 2.0;
    --power;
  }
  // log(m) = 2 artanh(s); s^2 < 0.0295, so that the 13th term is below 1e-20.
  const double s = (m - 1.0) / (m + 1.0);
  const double square = s * s;
  double sum = 0.0;
  for (int n = 25; n >= 3; n -= 2) sum = (sum + 1.0 / n) * square;
  return power * kLn2High + (power * kLn2Low + 2.0 * (s + s * sum));
}

}  // namespace moeflux
