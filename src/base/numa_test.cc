#include "base/numa.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/thread_pool.h"

namespace moeflux {
namespace {

using Cores = std::vector<int>;

/// A made-up /sys.
class NumaTest : public ::testing::Test {
 protected:
  NumaTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = ::testing::TempDir() + "moeflux_numa_" + std::to_string(::getpid()) + info->name();
    std::filesystem::remove_all(root_);
  }
  ~NumaTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& file, std::string_view text) {
    const std::filesystem::path path = root_ + "/sys/devices/system/node/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  std::string root_;
};

TEST_F(NumaTest, NodesHaveTheCoresThatMayBeUsed) {
  write("online", "0-1,4\n");
  write("node0/cpulist", "0-3,8-11\n");
  write("node1/cpulist", "4-7,12-15\n");
  write("node4/cpulist", "\n");  // memory alone
  const std::vector<NumaNode> nodes =
      read_numa_nodes(root_, Cores{0, 2, 3, 5, 6, 9, 12, 13, 14, 99});
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_EQ(nodes[0].cores, (Cores{0, 2, 3, 9}));
  EXPECT_EQ(nodes[1].id, 1);
  EXPECT_EQ(nodes[1].cores, (Cores{5, 6, 12, 13, 14}));
  EXPECT_EQ(read_numa_nodes(root_, Cores{4, 5}).size(), 1u);
}

TEST_F(NumaTest, MalformedListsEndWhereTheyAre) {
  EXPECT_TRUE(read_numa_nodes(root_, Cores{0}).empty());
  write("online", "0,1,nodes\n");
  write("node0/cpulist", "0-");
  write("node1/cpulist", "2,1-1024,3");
  const std::vector<NumaNode> nodes = read_numa_nodes(root_, Cores{0, 1, 2, 3});
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].cores, Cores{2});
}

std::vector<NumaNode> two_nodes() { return {{0, {0, 1, 4, 5}}, {1, {2, 3, 6}}}; }

TEST(Numa, OneNodeChangesNothing) {
  for (const NumaMode mode : {NumaMode::kOff, NumaMode::kDistribute, NumaMode::kIsolate}) {
    EXPECT_TRUE(choose_numa_nodes(mode, {{0, {0, 1}}}, 0).empty());
    EXPECT_TRUE(choose_numa_nodes(mode, {}, 0).empty());
  }
  EXPECT_TRUE(choose_numa_nodes(NumaMode::kOff, two_nodes(), 0).empty());
  EXPECT_TRUE(place_threads(4, false, {}, Cores{0, 1}).empty());
}

TEST(Numa, IsolationKeepsTheNodeThatTheThreadRunsOn) {
  EXPECT_EQ(choose_numa_nodes(NumaMode::kDistribute, two_nodes(), 3).size(), 2u);
  const auto isolated = [](int core) {
    const std::vector<NumaNode> nodes = choose_numa_nodes(NumaMode::kIsolate, two_nodes(), core);
    return nodes.size() == 1 ? nodes[0].id : -1;
  };
  EXPECT_EQ(isolated(4), 0);
  EXPECT_EQ(isolated(3), 1);
  EXPECT_EQ(isolated(-1), 0);
}

TEST(Numa, NodesHaveEvenSharesOfConsecutiveThreads) {
  const std::vector<NumaNode> nodes = two_nodes();
  const ThreadCores placed = place_threads(5, false, nodes, {});
  ASSERT_EQ(placed.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(placed[i], nodes[i < 3 ? 0 : 1].cores) << i;
}

TEST(Numa, PinnedThreadsHaveACoreEachOfTheirNode) {
  const ThreadCores placed = place_threads(7, true, two_nodes(), {});
  EXPECT_EQ(placed, (ThreadCores{{0}, {1}, {4}, {5}, {2}, {3}, {6}}));
  EXPECT_EQ(place_threads(3, true, {}, Cores{1, 7}), (ThreadCores{{1}, {7}, {1}}));
}

#if defined(__linux__)
TEST(Numa, WorkersStayOnTheCoresOfTheirNodes) {
  const Cores before = allowed_cores();
  if (before.size() < 2) GTEST_SKIP() << "hardware: one usable core: nothing to tell apart";
  const NumaNode nodes[] = {{0, {before[0]}}, {1, {before[1]}}};
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads, place_threads(kThreads, false, nodes, before));
  Cores of_thread[kThreads];
  std::atomic<int> arrived{0};
  // Each task waits for the others, so that all threads take part.
  pool.parallel_for(kThreads, [&](int64_t, int thread) {
    of_thread[thread] = allowed_cores();
    ++arrived;
    while (arrived.load() < kThreads) std::this_thread::yield();
  });
  EXPECT_EQ(of_thread[0], before);
  EXPECT_EQ(of_thread[1], nodes[0].cores);
  EXPECT_EQ(of_thread[2], nodes[1].cores);
  EXPECT_EQ(of_thread[3], nodes[1].cores);
}
#endif

}  // namespace
}  // namespace moeflux
