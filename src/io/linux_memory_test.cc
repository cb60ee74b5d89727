#include "io/linux_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/units.h"

namespace moeflux {
namespace {

/// A made-up /proc and /sys.
class LinuxMemoryTest : public ::testing::Test {
 protected:
  LinuxMemoryTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = ::testing::TempDir() + "moeflux_memory_" + std::to_string(::getpid()) + info->name();
    std::filesystem::remove_all(root_);
    write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:  1000 kB\nMemAvailable:    8388608 kB\n");
  }
  ~LinuxMemoryTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, std::string_view text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void write_v2(const std::string& folder, std::string_view max, uint64_t current,
                uint64_t inactive_file) {
    write(folder + "/memory.max", max);
    write(folder + "/memory.current", std::to_string(current) + "\n");
    write(folder + "/memory.stat", "anon 5\nactive_file 999999\ninactive_file " +
                                       std::to_string(inactive_file) + "\nslab 7\n");
  }
  void write_v1(const std::string& folder, uint64_t limit, uint64_t usage, uint64_t inactive_file) {
    write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    write(folder + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
    write(folder + "/memory.stat",
          "inactive_file 1\ntotal_inactive_file " + std::to_string(inactive_file) + "\n");
  }

  std::string root_;
};

TEST_F(LinuxMemoryTest, WithoutCgroupsTheMachineCounts) {
  const HostMemory memory = query_linux_memory(root_);
  EXPECT_EQ(memory.total_bytes, 16 * kGiB);
  EXPECT_EQ(memory.available_bytes, 8 * kGiB);
}

TEST_F(LinuxMemoryTest, WithoutProcNothingIsKnown) {
  const HostMemory memory = query_linux_memory(root_ + "/nowhere");
  EXPECT_EQ(memory.total_bytes, 0u);
  EXPECT_EQ(memory.available_bytes, 0u);
  EXPECT_EQ(linux_peak_resident_bytes(root_), 0u);
}

TEST_F(LinuxMemoryTest, CgroupV2LeavesLimitMinusUsagePlusInactiveFiles) {
  write("/proc/self/cgroup", "0::/user.slice/app\n");
  write_v2("/sys/fs/cgroup/user.slice/app", "4294967296\n", 3 * kGiB, kGiB);
  write_v2("/sys/fs/cgroup/user.slice", "max\n", 3 * kGiB, 0);
  const HostMemory memory = query_linux_memory(root_);
  EXPECT_EQ(memory.total_bytes, 4 * kGiB);
  EXPECT_EQ(memory.available_bytes, 2 * kGiB);
}

TEST_F(LinuxMemoryTest, TheTightestCgroupOnTheWayToTheRootCounts) {
  write("/proc/self/cgroup", "0::/a/b/c\n");
  write_v2("/sys/fs/cgroup/a/b/c", "max\n", kGiB, 0);
  write_v2("/sys/fs/cgroup/a/b", std::to_string(6 * kGiB), kGiB, 0);
  write_v2("/sys/fs/cgroup/a", std::to_string(7 * kGiB), 6 * kGiB, 0);
  const HostMemory memory = query_linux_memory(root_);
  EXPECT_EQ(memory.total_bytes, 6 * kGiB);
  EXPECT_EQ(memory.available_bytes, kGiB);
}

TEST_F(LinuxMemoryTest, ContainerWhoseCgroupIsTheNamespaceRootReadsTheMountPoint) {
  write("/proc/self/cgroup", "0::/\n");
  write_v2("/sys/fs/cgroup", std::to_string(2 * kGiB), kGiB, 0);
  EXPECT_EQ(query_linux_memory(root_).available_bytes, kGiB);
}

TEST_F(LinuxMemoryTest, ThrottlingLimitCountsLikeAHardOne) {
  write("/proc/self/cgroup", "0::/app\n");
  write_v2("/sys/fs/cgroup/app", "max\n", kGiB, 0);
  write("/sys/fs/cgroup/app/memory.high", std::to_string(3 * kGiB));
  EXPECT_EQ(query_linux_memory(root_).available_bytes, 2 * kGiB);
}

TEST_F(LinuxMemoryTest, UsageBeyondTheLimitLeavesNothing) {
  write("/proc/self/cgroup", "0::/app\n");
  write_v2("/sys/fs/cgroup/app", std::to_string(kGiB), 2 * kGiB, 0);
  EXPECT_EQ(query_linux_memory(root_).available_bytes, 0u);
}

TEST_F(LinuxMemoryTest, MoreReclaimableThanUsedLeavesTheLimit) {
  write("/proc/self/cgroup", "0::/app\n");
  write_v2("/sys/fs/cgroup/app", std::to_string(kGiB), 10, 2 * kGiB);
  EXPECT_EQ(query_linux_memory(root_).available_bytes, kGiB);
}

TEST_F(LinuxMemoryTest, CgroupV1UsesTheHierarchicalReclaimableBytes) {
  write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
  write_v1("/sys/fs/cgroup/memory/docker/abc", 5 * kGiB, 4 * kGiB, kGiB);
  write_v1("/sys/fs/cgroup/memory", 9223372036854771712u, 6 * kGiB, kGiB);
  const HostMemory memory = query_linux_memory(root_);
  EXPECT_EQ(memory.total_bytes, 5 * kGiB);
  EXPECT_EQ(memory.available_bytes, 2 * kGiB);
}

TEST_F(LinuxMemoryTest, MountInfoTellsWhereAndWhichCgroupIsMounted) {
  write("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
  write("/proc/self/mountinfo",
        "20 1 0:1 / /proc rw - proc proc rw\n"
        "35 31 0:32 /docker/abc /cg/memory rw,relatime shared:1 - cgroup cgroup rw,memory\n"
        "36 31 0:33 /docker/abc /cg/devices rw,relatime - cgroup cgroup rw,devices\n");
  write_v1("/cg/memory/inner", 5 * kGiB, 2 * kGiB, 0);
  EXPECT_EQ(query_linux_memory(root_).available_bytes, 3 * kGiB);
}

TEST_F(LinuxMemoryTest, CgroupOutsideOfTheNamespaceFallsBackToTheMountPoint) {
  write("/proc/self/cgroup", "0::/../other\n");
  write_v2("/sys/fs/cgroup", std::to_string(2 * kGiB), kGiB, 0);
  EXPECT_EQ(query_linux_memory(root_).available_bytes, kGiB);
}

TEST_F(LinuxMemoryTest, GarbledFilesSayNothing) {
  write("/proc/self/cgroup", "nonsense\n::\n0:\n\n0::/app\n");
  write("/proc/self/mountinfo", "x - y\n - cgroup2\n");
  write("/sys/fs/cgroup/app/memory.max", "lots\n");
  EXPECT_EQ(query_linux_memory(root_).available_bytes, 8 * kGiB);
  write("/sys/fs/cgroup/app/memory.max", "99999999999999999999999\n");
  EXPECT_EQ(query_linux_memory(root_).available_bytes, 8 * kGiB);
}

TEST_F(LinuxMemoryTest, PeakIsReadFromTheProcessStatus) {
  write("/proc/self/status", "Name:\tx\nVmPeak:\t  9999 kB\nVmHWM:\t    1234 kB\nVmRSS:\t 12 kB\n");
  EXPECT_EQ(linux_peak_resident_bytes(root_), 1234 * kKiB);
}

TEST(HostMemory, ThisMachineHasMemoryAndThisProcessUsesSome) {
  const HostMemory memory = query_host_memory();
  EXPECT_GT(memory.total_bytes, 0u);
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
  const uint64_t before = peak_resident_bytes();
  EXPECT_GT(before, 100 * kKiB);
  std::vector<char> block(64 * kMiB);
  volatile char* bytes = block.data();  // or clang does without the block
  for (size_t i = 0; i < block.size(); i += kKiB) bytes[i] = 1;
  EXPECT_GE(peak_resident_bytes(), static_cast<uint64_t>(block.size()));
  EXPECT_GE(peak_resident_bytes(), before);
}

}  // namespace
}  // namespace moeflux
