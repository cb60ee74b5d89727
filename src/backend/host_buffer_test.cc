#include "backend/host_buffer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>
#ifdef __linux__
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#endif

#include "base/units.h"

namespace moeflux {
namespace {

TEST(HostBuffer, IsZeroedWritableToItsEndAndAligned) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, 4 * kMiB - 1, 4 * kMiB,
                             6 * kMiB + 4097, 8 * kMiB + 1}) {
    auto buffer = allocate_host_buffer(bytes);
    ASSERT_TRUE(buffer.ok()) << bytes;
    std::byte* data = (*buffer)->host_data();
    EXPECT_GE((*buffer)->size_bytes(), bytes);
    const uint64_t alignment = bytes >= 4 * kMiB ? 2 * kMiB : 4096;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u) << bytes;
    const size_t last = bytes == 0 ? 0 : bytes - 1;
    for (const size_t at : {size_t{0}, bytes / 2, last}) EXPECT_EQ(data[at], std::byte{0}) << bytes;
    data[0] = data[last] = std::byte{1};
  }
}

#ifdef __linux__
int memory_policy(const void* address) {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0, address, MPOL_F_ADDR) == 0 ? mode : -1;
}

TEST(HostBuffer, ALargeOneIsInterleavedOverNodes) {
  const NumaNode nodes[] = {{0, {0}}, {1, {1}}};  // a node that is not there is left out
  auto probe = allocate_host_buffer(2 * kMiB);
  ASSERT_TRUE(probe.ok());
  if (!interleave_pages((*probe)->host_data(), 2 * kMiB, nodes)) {
    GTEST_SKIP() << "hardware: the system has no policies of memory";
  }
  const auto policy = [&](size_t bytes, std::span<const NumaNode> on) {
    auto buffer = allocate_host_buffer(bytes, on);
    EXPECT_TRUE(buffer.ok());
    return buffer.ok() ? memory_policy((*buffer)->host_data() + bytes - 1) : -1;
  };
  EXPECT_EQ(policy(3 * kMiB + 5, nodes), MPOL_INTERLEAVE);
  EXPECT_NE(policy(3 * kMiB + 5, {}), MPOL_INTERLEAVE);
  EXPECT_NE(policy(kMiB, nodes), MPOL_INTERLEAVE);
}
#endif

// Linux gives the pages back at once, so they read as zeros; elsewhere the call is a hint.
TEST(HostBuffer, DiscardTakesWholePagesInsideTheRange) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto buffer = allocate_host_buffer(4 * page + 10);
  ASSERT_TRUE(buffer.ok());
  std::byte* data = (*buffer)->host_data();
  std::fill(data, data + (*buffer)->size_bytes(), std::byte{7});
  EXPECT_TRUE(discard_host_memory(**buffer, page + 1, 2 * page));  // one whole page is inside
  EXPECT_EQ(data[2 * page - 1], std::byte{7});
  EXPECT_EQ(data[3 * page], std::byte{7});
#ifdef __linux__
  EXPECT_EQ(data[2 * page], std::byte{0});
  EXPECT_EQ(data[3 * page - 1], std::byte{0});
#endif
  EXPECT_TRUE(discard_host_memory(**buffer, 3 * page, page + 10));  // to the end, page or not
  EXPECT_EQ(data[3 * page - 1], data[2 * page]);
  data[4 * page + 9] = std::byte{8};  // still usable
  EXPECT_EQ(data[4 * page + 9], std::byte{8});
}

TEST(HostBuffer, WhatIsNotItsOwnIsNotDiscarded) {
  class Foreign : public Buffer {
   public:
    size_t size_bytes() const override { return bytes.size(); }
    std::byte* host_data() const override { return const_cast<std::byte*>(bytes.data()); }
    std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20, std::byte{7});
  };
  Foreign foreign;
  EXPECT_FALSE(discard_host_memory(foreign, 0, foreign.size_bytes()));
  EXPECT_EQ(std::count(foreign.bytes.begin(), foreign.bytes.end(), std::byte{7}), 1 << 20);
}

TEST(HostBuffer, MoreThanThereCanBeIsRefused) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2}) {
    const auto buffer = allocate_host_buffer(bytes);
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.error().code(), ErrorCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace moeflux
