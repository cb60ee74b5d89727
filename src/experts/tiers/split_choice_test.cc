#include "experts/tiers/split_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace moeflux {
namespace {

constexpr DeviceEighths kHelper = 0;
constexpr std::array kTwo = {kDeviceAlone, kHelper};
constexpr std::array<DeviceEighths, 5> kFive = {kDeviceAlone, kHelper, 2, 3, 4};

using Seconds = std::map<DeviceEighths, double>;

/// Steps of `rows` rows that take what `seconds` says by way; how many each way took.
std::map<DeviceEighths, int> run(SplitChoice& choice, int steps, const Seconds& seconds,
                                 int64_t rows = 1) {
  std::map<DeviceEighths, int> taken;
  for (int i = 0; i < steps; ++i) {
    const DeviceEighths way = choice.begin_step(rows);
    ++taken[way];
    choice.end_step(seconds.at(way));
  }
  return taken;
}

TEST(SplitChoice, BothAreTriedAndTheFasterOneGoesOn) {
  for (const bool helper_is_faster : {false, true}) {
    SplitChoice choice(kTwo);
    const Seconds seconds = {{kDeviceAlone, 0.002}, {kHelper, helper_is_faster ? 0.001 : 0.003}};
    const auto tried = run(choice, 8, seconds);
    EXPECT_EQ(tried.at(kDeviceAlone), 4);
    EXPECT_EQ(tried.at(kHelper), 4);
    EXPECT_EQ(run(choice, 64, seconds).at(helper_is_faster ? kHelper : kDeviceAlone), 64);
  }
}

TEST(SplitChoice, OneWayIsNeverTried) {
  SplitChoice choice(std::array{kHelper});
  EXPECT_EQ(run(choice, 9000, {{kHelper, 0.001}}).at(kHelper), 9000);
}

TEST(SplitChoice, WhatHasBecomeSlowerIsLeft) {
  SplitChoice choice(kTwo);
  run(choice, 200, {{kDeviceAlone, 0.002}, {kHelper, 0.001}});
  const Seconds now = {{kDeviceAlone, 0.002}, {kHelper, 0.003}};
  run(choice, 200, now);
  EXPECT_EQ(run(choice, 32, now)[kDeviceAlone], 32);
}

TEST(SplitChoice, WhatHasBecomeFasterIsFound) {
  SplitChoice choice(kTwo);
  run(choice, 200, {{kDeviceAlone, 0.0012}, {kHelper, 0.001}});
  const Seconds now = {{kDeviceAlone, 0.0005}, {kHelper, 0.001}};
  run(choice, 300, now);
  EXPECT_EQ(run(choice, 32, now)[kDeviceAlone], 32);
}

TEST(SplitChoice, TheFirstStepAfterAChangeIsNotCounted) {
  SplitChoice choice(kTwo);
  DeviceEighths last = kHelper;
  for (int i = 0; i < 8; ++i) {
    const DeviceEighths way = choice.begin_step(1);
    const double slow = way == last ? 0.0 : 1.0;
    choice.end_step(slow + (way == kHelper ? 0.001 : 0.002));
    last = way;
  }
  EXPECT_EQ(choice.begin_step(1), kHelper);
}

TEST(SplitChoice, OneSlowStepDecidesNothing) {
  SplitChoice choice(kTwo);
  const auto steps = [&](int count, int slow) {
    for (int i = 0; i < count; ++i) {
      const DeviceEighths way = choice.begin_step(1);
      choice.end_step(i == slow ? 9.0 : way == kHelper ? 0.001 : 0.002);
    }
  };
  steps(64, 6);
  EXPECT_EQ(choice.begin_step(1), kHelper);
}

TEST(SplitChoice, StepsOfOtherSizesHaveAChoiceOfTheirOwn) {
  SplitChoice choice(kTwo);
  run(choice, 16, {{kDeviceAlone, 0.002}, {kHelper, 0.001}}, 1);
  run(choice, 16, {{kDeviceAlone, 0.002}, {kHelper, 0.004}}, 32);
  EXPECT_EQ(choice.begin_step(1), kHelper);
  EXPECT_EQ(choice.begin_step(40), kDeviceAlone);
  EXPECT_EQ(choice.begin_step(int64_t{1} << 40), kDeviceAlone);
}

// It has no end, so the next one takes its place.
TEST(SplitChoice, AStepThatFailedCountsForNothing) {
  SplitChoice choice(kTwo);
  for (int i = 0; i < 100; ++i) choice.begin_step(1);
  const auto tried = run(choice, 8, {{kDeviceAlone, 0.002}, {kHelper, 0.001}});
  EXPECT_EQ(tried.at(kDeviceAlone), 4);
  EXPECT_EQ(tried.at(kHelper), 4);
}

/// A machine as it is: steps scatter by a tenth, some take far longer, the first of a run has
/// to be planned anew, and all of it drifts while caches fill.
class Machine {
 public:
  Machine(Seconds of_ways, unsigned seed) : of_ways_(std::move(of_ways)), random_(seed) {}

  double step(DeviceEighths way) {
    const double warmth = 1.0 + 0.3 * std::exp(-static_cast<double>(steps_++) / 100.0);
    double seconds = of_ways_.at(way) * warmth * (1.0 + 0.1 * (uniform() + uniform() - 1.0));
    if (uniform() < 0.02) seconds *= 4.0;
    if (way != last_) seconds *= 1.8;
    last_ = way;
    return seconds;
  }

 private:
  double uniform() { return static_cast<double>(random_()) / static_cast<double>(random_.max()); }

  Seconds of_ways_;
  std::mt19937 random_;
  int steps_ = 0;
  DeviceEighths last_ = -1;
};

/// Time of the best way over the time taken, of the steps behind those that warm up.
double share_of_best(const Seconds& of_ways, unsigned seed) {
  constexpr int kWarmUp = 64;
  constexpr int kSteps = 320;
  SplitChoice choice(kFive);
  Machine machine(of_ways, seed);
  double taken = 0.0;
  for (int i = 0; i < kWarmUp + kSteps; ++i) {
    const DeviceEighths way = choice.begin_step(1);
    const double seconds = machine.step(way);
    choice.end_step(seconds);
    if (i >= kWarmUp) taken += seconds;
  }
  double least = 1e9;
  for (const auto& [way, unused] : of_ways) {
    Machine alone(of_ways, seed);
    double seconds = 0.0;
    for (int i = 0; i < kWarmUp + kSteps; ++i) {
      const double step = alone.step(way);
      if (i >= kWarmUp) seconds += step;
    }
    least = std::min(least, seconds);
  }
  return least / taken;
}

// The bar of `--plan auto`: 0.97 of the best fixed plan. Means of many runs; single ones scatter.
TEST(SplitChoice, IsNearlyAsFastAsTheBestWay) {
  const std::vector<Seconds> machines = {
      // A large GPU whose host has many cores, few experts near: both together.
      {{kDeviceAlone, 10.8}, {kHelper, 9.6}, {2, 7.6}, {3, 7.2}, {4, 7.9}},
      // The same with most choices near: the host's part in each layer costs more than it saves.
      {{kDeviceAlone, 5.9}, {kHelper, 8.0}, {2, 8.0}, {3, 8.1}, {4, 8.2}},
      // Few cores.
      {{kDeviceAlone, 10.8}, {kHelper, 20.0}, {2, 16.0}, {3, 14.0}, {4, 12.0}},
      // A narrow bus.
      {{kDeviceAlone, 30.0}, {kHelper, 10.0}, {2, 11.0}, {3, 14.0}, {4, 18.0}},
      // No difference to speak of.
      {{kDeviceAlone, 10.0}, {kHelper, 10.1}, {2, 10.0}, {3, 9.9}, {4, 10.0}}};
  for (size_t m = 0; m < machines.size(); ++m) {
    constexpr unsigned kRuns = 100;
    double mean = 0.0;
    double least = 1.0;
    for (unsigned seed = 1; seed <= kRuns; ++seed) {
      const double share = share_of_best(machines[m], seed);
      mean += share / kRuns;
      least = std::min(least, share);
    }
    EXPECT_GT(mean, 0.97) << "machine " << m;
    EXPECT_GT(least, 0.9) << "machine " << m;
  }
}

}  // namespace
}  // namespace moeflux
