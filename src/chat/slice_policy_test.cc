// The policy under virtual time.
#include "chat/slice_policy.h"

#include <gtest/gtest.h>

#include <map>

namespace moeflux {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const auto kAll = [](uint64_t) { return true; };

TEST(SlicePolicy, SharesTimeAndNotSlices) {
  SlicePolicy policy({});
  policy.add(1);
  policy.add(2);
  std::map<uint64_t, milliseconds> served;
  for (int i = 0; i < 300; ++i) {
    const uint64_t id = *policy.next(kAll);
    const milliseconds slice(id == 1 ? 1000 : 4000);
    served[id] += slice;
    policy.charge(id, slice);
  }
  EXPECT_LE(std::chrono::abs(served[1] - served[2]), milliseconds(4000));
}

TEST(SlicePolicy, EqualOnesGoRound) {
  SlicePolicy policy({});
  for (const uint64_t id : {5, 3, 4}) policy.add(id);
  std::vector<uint64_t> order;
  for (int i = 0; i < 6; ++i) {
    order.push_back(*policy.next(kAll));
    policy.charge(order.back(), seconds(1));
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{5, 3, 4, 5, 3, 4}));
}

TEST(SlicePolicy, WhoComesLateHasNoClaimOnThePast) {
  SlicePolicy policy({});
  policy.add(1);
  for (int i = 0; i < 100; ++i) policy.charge(*policy.next(kAll), seconds(1));
  policy.add(2);
  int second = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t id = *policy.next(kAll);
    EXPECT_TRUE(i > 0 || id == 2u);
    second += id == 2 ? 1 : 0;
    policy.charge(id, seconds(1));
  }
  EXPECT_GE(second, 10);
  EXPECT_LE(second, 11);
}

TEST(SlicePolicy, WhoWasParkedGetsNoArrears) {
  SlicePolicy policy({});
  policy.add(1);
  policy.add(2);
  for (int i = 0; i < 50; ++i) {
    policy.charge(*policy.next([](uint64_t id) { return id == 1; }), seconds(1));
  }
  int second = 0;
  for (int i = 0; i < 20; ++i) {
    const uint64_t id = *policy.next(kAll);
    second += id == 2 ? 1 : 0;
    policy.charge(id, seconds(1));
  }
  EXPECT_GE(second, 10);
  EXPECT_LE(second, 11);
  EXPECT_FALSE(policy.next([](uint64_t) { return false; }));
  policy.remove(1);
  EXPECT_EQ(policy.next(kAll), 2u);
}

TEST(SlicePolicy, ASliceLastsSoManyTokensAndSoLong) {
  const SlicePolicy policy({.tokens = 16, .time = seconds(1)});
  EXPECT_FALSE(policy.is_over({.tokens = 15, .elapsed = seconds(30)}));
  EXPECT_FALSE(policy.is_over({.tokens = 400, .elapsed = milliseconds(999)}));
  EXPECT_TRUE(policy.is_over({.tokens = 16, .elapsed = seconds(1)}));
  EXPECT_FALSE(policy.is_over({.has_prompt = true, .elapsed = milliseconds(999)}));
  EXPECT_TRUE(policy.is_over({.has_prompt = true, .elapsed = seconds(1)}));
}

}  // namespace
}  // namespace moeflux
