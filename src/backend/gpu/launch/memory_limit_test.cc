#include "backend/gpu/launch/memory_limit.h"

#include <gtest/gtest.h>

#include <utility>

#include "backend/gpu/gpu_device.h"

namespace moeflux::gpu {
namespace {

TEST(MemoryLimit, AShareIsTakenUntilItGoes) {
  MemoryLimit limit(100);
  Result<MemoryLimit::Share> first = limit.take(60);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(limit.bytes_left(), 40u);
  EXPECT_FALSE(limit.take(41).ok());
  {
    const MemoryLimit::Share moved = std::move(*first);
    EXPECT_EQ(limit.bytes_left(), 40u);
  }
  EXPECT_EQ(limit.bytes_left(), 100u);
  EXPECT_TRUE(limit.take(100).ok());
}

TEST(MemoryLimit, WithoutOneEverythingIsTaken) {
  MemoryLimit limit(std::nullopt);
  EXPECT_TRUE(limit.take(UINT64_MAX).ok());
  EXPECT_FALSE(limit.bytes_left().has_value());
}

TEST(EmulatorMemory, IsBoundedAsASmallGpusIs) {
  const auto device = make_emulator_device({.memory_bytes = 4096});
  EXPECT_EQ(device->free_bytes(), 4096u);
  auto near = device->allocate(3000, MemoryKind::kDevice);
  ASSERT_TRUE(near.ok());
  EXPECT_EQ(device->free_bytes(), 1096u);
  const auto refused = device->allocate(1097, MemoryKind::kDevice);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_TRUE(device->allocate(1 << 20, MemoryKind::kHostVisible).ok());
  near->reset();
  EXPECT_EQ(device->free_bytes(), 4096u);
}

}  // namespace
}  // namespace moeflux::gpu
