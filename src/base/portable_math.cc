#include "base/portable_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace moeflux {
namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// pi / 2 in parts: products of the first two with numbers below 2^23 are exact.
constexpr double kHalfPiHigh = 0x1.921fb54000000p+0;
constexpr double kHalfPiMiddle = 0x1.10b4611800000p-30;
constexpr double kHalfPiLow = 0x1.313198a2e0370p-61;

/// 1 / n!
constexpr std::array<double, 18> kInverseFactorials = [] {
  std::array<double, 18> all{};
  double product = 1.0;
  for (size_t n = 0; n < all.size(); ++n) {
    product *= n == 0 ? 1.0 : static_cast<double>(n);
    all[n] = 1.0 / product;
  }
  return all;
}();

/// The nearest integer, below 2^51: the sum has no fraction bits left.
double to_integer(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/// The sum of square^i / (first + 2 i)! from 0 to the last one.
template <size_t kFirst, size_t kLast>
double series(double square) {
  double sum = kInverseFactorials[kLast];
  for (size_t n = kLast; n > kFirst; n -= 2) sum = kInverseFactorials[n - 2] + sum * square;
  return sum;
}

}  // namespace

double portable_exp(double x) {
  constexpr double kLog2OfE = 1.4426950408889634;
  if (std::isnan(x)) return x;
  if (x < -700.0) return 0.0;
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  const double power = to_integer(x * kLog2OfE);
  const double r = (x - power * kLn2High) - power * kLn2Low;  // |r| <= ln(2) / 2
  // Even and odd powers: two chains of operations, each half as long. The 15th is below 3e-19.
  const double square = r * r;
  const double sum = 1.0 + (square * series<2, 14>(square) + r * series<1, 13>(square));
  return sum * std::bit_cast<double>(static_cast<uint64_t>(power + 1023.0) << 52);
}

double portable_log(double x) {
  constexpr double kRootOfHalf = 0.7071067811865476;
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (!(x > 0.0)) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(x)) return x;
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

double portable_log1p(double x) {
  const double sum = 1.0 + x;
  if (!(sum > 1.0) || std::isinf(sum)) return x;
  // The quotient puts back what the sum lost.
  return portable_log(sum) * (x / (sum - 1.0));
}

double portable_pow(double base, double exponent) {
  return portable_exp(exponent * portable_log(base));
}

SineAndCosine portable_sin_cos(double angle) {
  if (!(std::abs(angle) < 0x1p40)) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    return {none, none};
  }
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  const double turns = to_integer(angle * kTwoOverPi);
  const double r = ((angle - turns * kHalfPiHigh) - turns * kHalfPiMiddle) - turns * kHalfPiLow;
  const double square = r * r;  // |r| <= pi / 4: the terms left out are below 1e-16
  const double sine = r - r * square * series<3, 17>(-square);
  const double cosine = 1.0 - square * series<2, 16>(-square);
  switch (static_cast<uint64_t>(static_cast<int64_t>(turns)) % 4) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace moeflux
