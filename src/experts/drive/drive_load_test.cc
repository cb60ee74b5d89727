#include "experts/drive/drive_load.h"

#include <gtest/gtest.h>

namespace moeflux {
namespace {

constexpr uint64_t kExpert = 1000;

TEST(DriveMeter, KnowsOfNoIdleTimeBeforeItHasSeenAny) {
  DriveMeter meter;
  EXPECT_EQ(meter.load(kExpert).utilisation, 1.0);
  EXPECT_EQ(meter.load(kExpert).spare_reads, 0.0);
  meter.visit(kExpert, 1.0);
  EXPECT_EQ(meter.load(kExpert).spare_reads, 0.0);
}

TEST(DriveMeter, TellsTheBusyShareAndWhatFitsTheRest) {
  DriveMeter meter;
  for (int i = 0; i < 300; ++i) {
    meter.read(2 * kExpert, 0.002);  // a million bytes a second: 1 ms an expert
    meter.visit(kExpert, 0.004);
  }
  const DriveLoad load = meter.load(kExpert);
  EXPECT_NEAR(load.utilisation, 0.25, 1e-9);
  EXPECT_NEAR(load.read_seconds, 0.001, 1e-9);
  EXPECT_NEAR(load.spare_reads, 3.0, 1e-3);
}

TEST(DriveMeter, FollowsWhatChanges) {
  DriveMeter meter;
  for (int i = 0; i < 300; ++i) {
    meter.read(kExpert, 0.001);
    meter.visit(0, 0.004);
  }
  EXPECT_EQ(meter.load(kExpert).utilisation, 0.0);
  for (int i = 0; i < 100; ++i) meter.visit(8 * kExpert, 0.004);
  EXPECT_EQ(meter.load(kExpert).utilisation, 1.0);
  EXPECT_EQ(meter.load(kExpert).spare_reads, 0.0);
}

}  // namespace
}  // namespace moeflux
