// Copies beside launches, ordered wrongly on purpose: each mistake that a GPU would mostly let pass
// ends in its report.
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/gpu_device.h"
#include "tests/support/device_session.h"

namespace moeflux {
namespace {

using testing::DeviceSession;

constexpr int64_t kSlot = 64;  // numbers

class CopyWatchTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  Encoder& encoder() { return session_.encoder(); }
  Tensor slot(const Tensor& of, int64_t i) const { return of.slice(0, i * kSlot, kSlot); }
  /// Asks for a copy of a far slot into a near one.
  CopyId bring(int64_t far, int64_t near, EventId after) {
    const Tensor from = slot(far_, far);
    const Tensor to = slot(near_, near);
    const BufferCopy copy{.to = to.buffer,
                          .to_offset = to.offset_bytes,
                          .from = from.buffer,
                          .from_offset = from.offset_bytes,
                          .bytes = from.size_bytes()};
    return encoder().copy_beside(std::span(&copy, 1), after);
  }
  void wait_until_copied(CopyId last) {
    while (!encoder().has_copied(last)) {
    }
  }
  Status end() { return encoder().wait(encoder().submit()); }
  static void expect_race(const Status& status, std::initializer_list<const char*> words) {
    ASSERT_FALSE(status.ok());
    for (const char* word : words) {
      EXPECT_NE(status.error().message().find(word), std::string::npos) << status.error().message();
    }
  }
  /// Copies are known from the first on: one that is well ordered.
  void SetUp() override {
    encoder().await_copies(bring(3, 3, encoder().submit()));
    ASSERT_TRUE(end().ok());
  }

  std::unique_ptr<Device> device_ = make_emulator_device({.copy_seed = GetParam()});
  DeviceSession session_{*device_};
  Tensor far_ = session_.floats({4 * kSlot}, std::vector<float>(4 * kSlot, 2.0f));
  Tensor near_ = session_.zeros({4 * kSlot});
  Tensor out_ = session_.zeros({kSlot});
};

TEST_P(CopyWatchTest, ALaunchAfterTheCopyReadsWhatItBrought) {
  const CopyId arrives = bring(0, 1, encoder().submit());
  encoder().await_copies(arrives);
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  ASSERT_TRUE(end().ok());
  EXPECT_EQ(session_.read(out_), std::vector<float>(kSlot, 2.0f));
}

TEST_P(CopyWatchTest, ALaunchThatDoesNotWaitForTheCopyIsARace) {
  (void)bring(0, 1, encoder().submit());
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  expect_race(end(), {"kernel copy", "race of copies", "copy 2 may still write", "up to 1 only"});
}

TEST_P(CopyWatchTest, SoIsOneThatWaitsForAnEarlierCopyOnly) {
  const CopyId first = bring(0, 1, encoder().submit());
  (void)bring(1, 2, encoder().submit());
  encoder().await_copies(first);
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  ASSERT_TRUE(end().ok());
  encoder().run(ops::Copy{out_, slot(near_, 2)});
  expect_race(end(), {"copy 3 may still write", "up to 2 only"});
}

TEST_P(CopyWatchTest, WhatTheHostHasSeenOrdersLaterLaunches) {
  wait_until_copied(bring(0, 1, encoder().submit()));
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  ASSERT_TRUE(end().ok());
  EXPECT_EQ(session_.read(out_), std::vector<float>(kSlot, 2.0f));
}

TEST_P(CopyWatchTest, ButNotThoseRecordedBefore) {
  const CopyId arrives = bring(0, 1, encoder().submit());
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  const std::vector<float> zeros(kSlot);
  encoder().write(out_, std::as_bytes(std::span(zeros)));  // launches it
  wait_until_copied(arrives);
  expect_race(end(), {"copy 2 may still write"});
}

TEST_P(CopyWatchTest, ACopyIntoWhatALaterLaunchReadsIsARace) {
  const EventId before = encoder().submit();
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  ASSERT_TRUE(end().ok());
  encoder().await_copies(bring(0, 1, before));
  expect_race(end(), {"race of copy 2", "writes memory", "copy_rows", "may still use"});
}

TEST_P(CopyWatchTest, BehindThatLaunchItIsNone) {
  encoder().run(ops::Copy{out_, slot(near_, 1)});
  encoder().await_copies(bring(0, 1, encoder().submit()));
  EXPECT_TRUE(end().ok());
}

TEST_P(CopyWatchTest, ALaunchThatChangesWhatACopyReadsIsARace) {
  const CopyId arrives = bring(0, 1, encoder().submit());
  encoder().run(ops::Copy{slot(far_, 0), out_});
  encoder().await_copies(arrives);
  expect_race(end(), {"writes bytes", "copy 2 may still read"});
}

TEST_P(CopyWatchTest, ACopyOfWhatALaterLaunchWritesIsARace) {
  const EventId before = encoder().submit();
  encoder().run(ops::Copy{slot(far_, 0), out_});
  ASSERT_TRUE(end().ok());
  encoder().await_copies(bring(0, 1, before));
  expect_race(end(), {"race of copy 2", "reads memory", "may not have written yet"});
}

TEST_P(CopyWatchTest, LaunchesMayReadWhatACopyReads) {
  const CopyId arrives = bring(0, 1, encoder().submit());
  encoder().run(ops::Copy{out_, slot(far_, 0)});
  encoder().await_copies(arrives);
  EXPECT_TRUE(end().ok());
}

TEST_P(CopyWatchTest, SlotsBesideTheCopyAreFree) {
  (void)bring(0, 1, encoder().submit());
  encoder().run(ops::Copy{out_, slot(near_, 0)});
  encoder().run(ops::Copy{slot(near_, 2), out_});
  EXPECT_TRUE(end().ok());
}

TEST_P(CopyWatchTest, TheHostTakesPartInRaces) {
  (void)bring(0, 1, encoder().submit());
  std::vector<float> values(kSlot);
  expect_race(encoder().read(std::as_writable_bytes(std::span(values)), slot(near_, 1)),
              {"a read of the host", "copy 2 may still write"});
}

INSTANTIATE_TEST_SUITE_P(Seeds, CopyWatchTest, ::testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace moeflux
