// top_rows: the same values and places on every device as by sorting.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "tests/conformance/support.h"

namespace moeflux::conformance {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Top {
  std::vector<uint32_t> bits;  // of the values, which may be no numbers
  std::vector<int32_t> ids;
  bool operator==(const Top&) const = default;
};

Top top_of(Device& device, const std::vector<float>& x, int64_t n, int64_t used_cols, int64_t k) {
  Session s(device);
  const Tensor values = s.zeros({n, k});
  const Tensor ids = s.zeros({n, k}, DType::kI32);
  const Tensor rows = s.floats({n, static_cast<int64_t>(x.size()) / n}, x);
  s.encoder().run(ops::TopRows{values, ids, rows.slice(1, 0, used_cols)});
  Top top;
  for (const float value : s.read(values)) top.bits.push_back(std::bit_cast<uint32_t>(value));
  top.ids = s.read_ints(ids);
  return top;
}

void expect_top(const std::string& what, const std::vector<float>& x, int64_t n, int64_t used_cols,
                int64_t k) {
  const Top expected = top_of(reference(), x, n, used_cols, k);
  for (const NamedDevice& device : devices()) {
    const Top got = top_of(*device.device, x, n, used_cols, k);
    EXPECT_EQ(got.ids, expected.ids) << what << ", " << device.name;
    EXPECT_EQ(got.bits, expected.bits) << what << ", " << device.name;
  }
}

TEST(TopRows, AgreesWithTheReferenceOnRowsOfAnyWidth) {
  Random random(70);
  for (const int64_t cols : {1, 2, 33, 511, 512, 513, 1300, 9001}) {
    for (const int64_t k : {1, 2, 40, 64}) {
      if (k > cols) continue;
      const int64_t n = cols < 1000 ? 3 : 1;
      // Few different values, so that many are equal.
      std::vector<float> x = random.floats(n * (cols + 5), -9.0f, 9.0f);
      for (size_t i = 0; i < x.size(); ++i) {
        if (i % 3 != 0) x[i] = std::round(x[i]) * (i % 2 == 0 ? 1.0f : -1.0f);
      }
      expect_top(formatted("{} of {}", k, cols), x, n, cols, k);
    }
  }
}

TEST(TopRows, PutsTheHighestFirstAndEqualOnesInOrder) {
  const std::vector<float> x = {1, 4, -0.0f, 4, 0, 7, 4};
  const Top top = top_of(reference(), x, 1, 7, 6);
  EXPECT_EQ(top.ids, (std::vector<int32_t>{5, 1, 3, 6, 0, 2}));
  EXPECT_EQ(top.bits[5], std::bit_cast<uint32_t>(-0.0f));
  expect_top("zeros", x, 1, 7, 7);
}

TEST(TopRows, WhatIsNoNumberStandsBesidePlusInfinityBeforeAllOthers) {
  std::vector<float> x(1100, -kInfinity);
  x[3] = 2.0f;
  x[700] = kInfinity;
  x[699] = -std::nanf("");
  x[1099] = std::nanf("");
  const Top top = top_of(reference(), x, 1, 1100, 6);
  EXPECT_EQ(top.ids, (std::vector<int32_t>{699, 700, 1099, 3, 0, 1}));
  expect_top("no numbers", x, 1, 1100, 6);
  expect_top("nothing above minus infinity", std::vector<float>(600, -kInfinity), 1, 600, 3);
}

}  // namespace
}  // namespace moeflux::conformance
