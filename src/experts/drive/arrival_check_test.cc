#include "experts/drive/arrival_check.h"

#include <gtest/gtest.h>

#include "checkpoint/checksum.h"
#include "experts/expert_world_test_util.h"
#include "tests/support/expect_error.h"

namespace moeflux {
namespace {

using testing::expect_error;

constexpr ExpertKey kChecked = {LayerId{0}, ExpertId{2}};
constexpr size_t kCheckedBytes = 64;

class ArrivalCheckTest : public ::testing::Test {
 protected:
  ArrivalCheckTest() : table_(world_.table()), slot_(world_.slot_bytes(), std::byte{7}) {
    ExpertLayer& layer = table_.layers[0];
    layer.checked_bytes = kCheckedBytes;
    layer.checksums.assign(ExpertWorld::kExperts,
                           checksum64(std::span(slot_).first(kCheckedBytes)));
  }
  void damage(size_t at) { slot_[at] = slot_[at] ^ std::byte{1}; }

  ExpertWorld world_;
  ExpertTable table_;
  std::vector<std::byte> slot_;  // as every expert of layer 0 arrives
};

TEST_F(ArrivalCheckTest, NamesTheFileThePlaceAndBothSums) {
  ArrivalCheck check(table_, world_.index());
  damage(kCheckedBytes - 1);
  const ExpertExtent& first = table_.layers[0].extents_of(kChecked.expert).front();
  expect_error(check.check(kChecked, slot_), ErrorCode::kCorruption,
               {"model.safetensors", "64 bytes at offset " + std::to_string(first.offset),
                checksum_text(checksum64(std::span(slot_).first(kCheckedBytes))),
                checksum_text(table_.layers[0].checksums[2])});
}

TEST_F(ArrivalCheckTest, WhatDidNotHoldIsComparedAgain) {
  ArrivalCheck check(table_, world_.index());
  damage(0);
  EXPECT_FALSE(check.check(kChecked, slot_).ok());
  EXPECT_FALSE(check.check(kChecked, slot_).ok());
  damage(0);  // mended
  EXPECT_TRUE(check.check(kChecked, slot_).ok());
}

TEST_F(ArrivalCheckTest, WhatHeldOnceIsNotComparedAgain) {
  ArrivalCheck check(table_, world_.index());
  EXPECT_TRUE(check.check(kChecked, slot_).ok());
  damage(0);
  EXPECT_TRUE(check.check(kChecked, slot_).ok());
  EXPECT_FALSE(check.check({LayerId{0}, ExpertId{3}}, slot_).ok());  // another expert
}

TEST_F(ArrivalCheckTest, PaddingBehindTheCheckedBytesDoesNotCount) {
  ArrivalCheck check(table_, world_.index());
  damage(kCheckedBytes);
  EXPECT_TRUE(check.check(kChecked, slot_).ok());
}

TEST_F(ArrivalCheckTest, LayersWithoutChecksumsPass) {
  ArrivalCheck check(table_, world_.index());
  EXPECT_TRUE(check.check({LayerId{1}, ExpertId{2}}, slot_).ok());
}

}  // namespace
}  // namespace moeflux
