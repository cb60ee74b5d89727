#include "base/portable_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace moeflux {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(PortableMath, AgreesWithTheLibrarys) {
  for (double x = -699.0; x < 700.0; x += 0.37) {
    EXPECT_NEAR(portable_exp(x) / std::exp(x), 1.0, 1e-15) << x;
  }
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(portable_log(x), std::log(x), 4e-16 * std::abs(std::log(x))) << x;
  }
  for (double x = 0.9; x < 1.1; x += 0.00037) EXPECT_NEAR(portable_log(x), std::log(x), 1e-16) << x;
  for (double x = 1e-20; x < 1e20; x *= 1.37) {
    EXPECT_NEAR(portable_log1p(x) / std::log1p(x), 1.0, 1e-15) << x;
  }
  for (double exponent = -1.0; exponent <= 1.0; exponent += 1.0 / 128) {
    EXPECT_NEAR(portable_pow(1e7, exponent) / std::pow(1e7, exponent), 1.0, 4e-15) << exponent;
  }
  for (double x = -1.3e7; x < 1.3e7; x += 12345.678) {
    EXPECT_NEAR(portable_sin_cos(x).sine, std::sin(x), 1e-15) << x;
    EXPECT_NEAR(portable_sin_cos(x).cosine, std::cos(x), 1e-15) << x;
    EXPECT_NEAR(portable_sin_cos(x * 1e-6).sine, std::sin(x * 1e-6), 2e-16) << x;
    EXPECT_NEAR(portable_sin_cos(x * 1e-6).cosine, std::cos(x * 1e-6), 2e-16) << x;
  }
}

TEST(PortableMath, HasTheEndsOfItsFunctions) {
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_EQ(portable_log(0.0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log(-1.0)));
  EXPECT_EQ(portable_exp(0.0), 1.0);
  EXPECT_EQ(portable_exp(-kInfinity), 0.0);
  EXPECT_EQ(portable_exp(kInfinity), kInfinity);
  EXPECT_EQ(portable_log1p(0.0), 0.0);
  EXPECT_EQ(portable_log1p(kInfinity), kInfinity);
  EXPECT_EQ(portable_pow(10000.0, 0.0), 1.0);
  EXPECT_EQ(portable_sin_cos(0.0).sine, 0.0);
  EXPECT_EQ(portable_sin_cos(0.0).cosine, 1.0);
  const double none = std::nan("");
  EXPECT_TRUE(std::isnan(portable_exp(none)));
  EXPECT_TRUE(std::isnan(portable_log1p(none)));
  EXPECT_TRUE(std::isnan(portable_sin_cos(none).sine));
  EXPECT_TRUE(std::isnan(portable_sin_cos(kInfinity).cosine));
}

// A digest of results over many arguments, the same on every machine.
TEST(PortableMath, HasTheSameBitsOnEveryMachine) {
  uint64_t digest = 14695981039346656037u;
  const auto add = [&](double value) {
    uint64_t bits = 0;
    static_assert(sizeof(bits) == sizeof(value));
    __builtin_memcpy(&bits, &value, sizeof(bits));
    digest = (digest ^ bits) * 1099511628211u;
  };
  for (int i = 1; i <= 10000; ++i) {
    const double x = i * 0.0625;
    add(portable_exp(x - 400.0));
    add(portable_log(x));
    add(portable_log1p(x));
    add(portable_pow(x, -0.75));
    add(portable_sin_cos(x * 1000.0).sine);
    add(portable_sin_cos(x).cosine);
  }
  EXPECT_EQ(digest, 12038496145987539354u);
}

}  // namespace
}  // namespace moeflux
