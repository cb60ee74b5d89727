#include "cli/bench_cells.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using Texts = std::vector<std::string>;

TEST(BenchCells, EachNearCacheHasAllPlansButResidentWhichComesLast) {
  const auto cells = bench_cells(Texts{"1G", "auto"}, Texts{"auto", "resident", "near", "helper"});
  ASSERT_TRUE(cells.ok());
  ASSERT_EQ(cells->size(), 3u);
  const std::vector<PlanMode> in_turn = {PlanMode::kAuto, PlanMode::kNear, PlanMode::kHelper};
  EXPECT_EQ((*cells)[0].near_cache, "1G");
  EXPECT_EQ((*cells)[0].plans, in_turn);
  EXPECT_EQ((*cells)[0].opening_plan(), PlanMode::kAuto);
  EXPECT_EQ((*cells)[1].near_cache, "auto");
  EXPECT_EQ((*cells)[1].plans, in_turn);
  EXPECT_EQ((*cells)[2].near_cache, "auto");
  EXPECT_EQ((*cells)[2].plans, std::vector{PlanMode::kResident});
  EXPECT_EQ((*cells)[2].opening_plan(), PlanMode::kResident);
}

TEST(BenchCells, OneNearCacheBoundsResidentToo) {
  const auto cells = bench_cells(Texts{"2G"}, Texts{"resident"});
  ASSERT_TRUE(cells.ok());
  ASSERT_EQ(cells->size(), 1u);
  EXPECT_EQ(cells->front().near_cache, "2G");
}

TEST(BenchCells, APlanIsMeasuredOnce) {
  const auto cells = bench_cells(Texts{""}, Texts{"near", "near"});
  ASSERT_TRUE(cells.ok());
  EXPECT_EQ(cells->front().plans.size(), 1u);
}

TEST(BenchCells, UnknownPlansAreRefused) {
  testing::expect_error(bench_cells(Texts{""}, Texts{"near", "far"}), ErrorCode::kInvalidArgument,
                        {"far", "helper"});
}

}  // namespace
}  // namespace moeflux
