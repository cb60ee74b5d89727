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

/// `mask` has a bit for each number of each row; empty: none.
Top top_of(Device& device, const std::vector<float>& x, int64_t n, int64_t used_cols, int64_t k,
           const std::vector<int32_t>& mask = {}) {
  Session s(device);
  const Tensor values = s.zeros({n, k});
  const Tensor ids = s.zeros({n, k}, DType::kI32);
  const Tensor rows = s.floats({n, static_cast<int64_t>(x.size()) / n}, x);
  ops::TopRows op{values, ids, rows.slice(1, 0, used_cols)};
  if (!mask.empty()) op.mask = s.ints({n, mask_words(used_cols)}, mask);
  s.encoder().run(op);
  Top top;
  for (const float value : s.read(values)) top.bits.push_back(std::bit_cast<uint32_t>(value));
  top.ids = s.read_ints(ids);
  return top;
}

void expect_top(const std::string& what, const std::vector<float>& x, int64_t n, int64_t used_cols,
                int64_t k, const std::vector<int32_t>& mask = {}) {
  const Top expected = top_of(reference(), x, n, used_cols, k, mask);
  for (const NamedDevice& device : devices()) {
    const Top got = top_of(*device.device, x, n, used_cols, k, mask);
    EXPECT_EQ(got.ids, expected.ids) << what << ", " << device.name;
    EXPECT_EQ(got.bits, expected.bits) << what << ", " << device.name;
  }
}

TEST(TopRows, AgreesWithTheReferenceOnRowsOfAnyWidth) {
  Random random(70);
  for (const int64_t cols : {1, 2, 33, 511, 512, 513, 1300, 9001}) {
    for (const int64_t k : {1, 2, 40, 64, 65, 96}) {
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

/// Bits for these of a row of `cols`.
std::vector<int32_t> mask_with(int64_t cols, const std::vector<int64_t>& allowed) {
  std::vector<int32_t> words(static_cast<size_t>(mask_words(cols)));
  for (const int64_t id : allowed) {
    auto& word = words[static_cast<size_t>(id) / 32];
    word = static_cast<int32_t>(static_cast<uint32_t>(word) | 1u << (id % 32));
  }
  return words;
}

TEST(TopRows, AMaskLeavesOthersOutAndEndsWithNone) {
  const std::vector<float> x = {5, 9, -kInfinity, 7, 9, 1, 3};
  const Top top = top_of(reference(), x, 1, 7, 5, mask_with(7, {0, 2, 4, 5}));
  EXPECT_EQ(top.ids, (std::vector<int32_t>{4, 0, 5, 2, -1}));
  EXPECT_EQ(top.bits[4], std::bit_cast<uint32_t>(-kInfinity));
  EXPECT_EQ(top_of(reference(), x, 1, 7, 2, mask_with(7, {})).ids, (std::vector<int32_t>{-1, -1}));
}

TEST(TopRows, MasksAgreeWithTheReferenceOnRowsOfAnyWidth) {
  Random random(71);
  for (const int64_t cols : {1, 31, 32, 33, 511, 513, 1300, 9001}) {
    const int64_t n = 3;
    std::vector<float> x = random.floats(n * (cols + 5), -9.0f, 9.0f);
    for (float& value : x) value = std::round(value * 4.0f) / 4.0f;
    x[0] = -kInfinity;
    std::vector<int64_t> some;
    std::vector<int64_t> all;
    for (int64_t id = 0; id < cols; ++id) {
      if (id % 5 == 2 || id % 97 == 0) some.push_back(id);
      all.push_back(id);
    }
    // A row each: one token, or none; some; all.
    std::vector<int32_t> mask =
        mask_with(cols, cols % 2 == 0 ? std::vector<int64_t>() : std::vector<int64_t>{cols - 1});
    for (const auto& row : {mask_with(cols, some), mask_with(cols, all)}) {
      mask.insert(mask.end(), row.begin(), row.end());
    }
    for (const int64_t k : {1, 2, 41, 65, 96}) {
      if (k <= cols) expect_top(formatted("{} of {}", k, cols), x, n, cols, k, mask);
    }
  }
}

TEST(TopRows, NoMaskHidesABrokenRow) {
  std::vector<float> x(1100, 1.0f);
  x[7] = kInfinity;
  x[900] = std::nanf("");
  x[3] = -kInfinity;
  const std::vector<int32_t> mask = mask_with(1100, {3, 20});
  EXPECT_EQ(top_of(reference(), x, 1, 1100, 5, mask).ids,
            (std::vector<int32_t>{7, 900, 20, 3, -1}));
  expect_top("a broken row", x, 1, 1100, 5, mask);
}

}  // namespace
}  // namespace moeflux::conformance
