// Kernels that are wrong on purpose: each mistake that a GPU would let pass ends in its report.
#include "backend/gpu/emulator/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "backend/gpu/emulator/kernel_entries.h"

namespace moeflux::gpu::emulator {
namespace {

struct Nothing {};

/// One launch over up to two arrays of words.
struct Problem {
  std::vector<u32> a = std::vector<u32>(64);
  std::vector<u32> b = std::vector<u32>(64);
  u32 threads = 64;
  Extent3 groups;
  u32 shared_bytes = 256;
  Allocations allocations = {};
  bool reads_early = false;

  static BoundRange range(std::vector<u32>& values, int32_t index) {
    auto* begin = reinterpret_cast<std::byte*>(values.data());
    return {begin, begin + values.size() * sizeof(u32), index, /*awaits=*/true};
  }
  Status run(KernelEntry entry, uint64_t seed) {
    Plan plan;
    plan.group_size = threads;
    plan.groups = groups;
    plan.shared_bytes = shared_bytes;
    Launch launch;
    launch.name = "tried";
    launch.entry = entry;
    launch.plan = &plan;
    launch.bindings[0] = range(a, 0);
    launch.bindings[1] = range(b, 1);
    const std::array<const Allocations*, 1> reached = {&allocations};
    launch.allocations = reached;
    launch.reads_early = reads_early;
    launch.seed = seed;
    Machine machine;
    return machine.run(launch);
  }
};

template <auto kernel>
std::string report_of(Problem problem = {}, uint64_t seed = 1) {
  const Status status = problem.run(&Unpack<kernel>::call, seed);
  return status.ok() ? "" : status.error().message();
}

void expect_words(const std::string& report, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(report.find(word), std::string::npos) << report;
}

// --- A kernel that is right ---

MF_KERNEL(reverse, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  kept[t.index] = a[t.index];
  barrier(t);
  b[t.index] = kept[t.threads - 1u - t.index];
}

TEST(Machine, RunsAKernelThatIsRightInAnyOrder) {
  for (const uint64_t seed : {0, 1, 2, 3, 99}) {
    Problem problem;
    for (u32 i = 0; i < 64; ++i) problem.a[i] = i;
    ASSERT_TRUE(problem.run(&Unpack<reverse>::call, seed).ok());
    for (u32 i = 0; i < 64; ++i) EXPECT_EQ(problem.b[i], 63 - i);
  }
}

MF_KERNEL(hasty, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD_EARLY;
  const u32 value = a[t.index];
  await_inputs(t);
  b[t.index] = value;
}
MF_KERNEL(patient, Nothing, MF_CONST(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD_EARLY;
  const u32 value = a[t.index];
  await_inputs(t);
  b[t.index] = value;
}

TEST(Machine, ReportsWhatIsTouchedBeforeItsInputsAreThere) {
  expect_words(report_of<hasty>(), {"binding 0", "before its inputs are there"});
  EXPECT_EQ(report_of<patient>(), "");
  Problem said;
  said.reads_early = true;
  EXPECT_EQ(report_of<hasty>(said), "");
}

MF_KERNEL(extremes, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  const u32 highest = simd_max(t, a[t.index]);
  b[t.index] = highest - simd_min(t, a[t.index]);
}

TEST(Machine, FindsTheHighestAndTheLowestOfASimdGroup) {
  Problem problem;
  for (u32 i = 0; i < 64; ++i) problem.a[i] = (i * 37 % 64) * (i < 32 ? 0x04000000u : 2u);
  const auto [low, high] = std::minmax_element(problem.a.begin(), problem.a.begin() + 32);
  const auto [low2, high2] = std::minmax_element(problem.a.begin() + 32, problem.a.end());
  ASSERT_TRUE(problem.run(&Unpack<extremes>::call, 5).ok());
  for (u32 i = 0; i < 64; ++i) EXPECT_EQ(problem.b[i], i < 32 ? *high - *low : *high2 - *low2);
}

MF_KERNEL(every_group, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  if (t.index == 0u) b[t.group.x + 3u * t.group.y + 6u * t.group.z] += a[0];
}

TEST(Machine, VisitsEveryGroupOnce) {
  for (const uint64_t seed : {0, 1, 7, 12345}) {
    Problem problem;
    problem.a[0] = 1;
    problem.groups = {3, 2, 5};
    ASSERT_TRUE(problem.run(&Unpack<every_group>::call, seed).ok());
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(problem.b[i], i < 30 ? 1u : 0u) << i;
  }
}

MF_KERNEL(exchanges, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  const f32 sum = simd_sum(t, static_cast<f32>(a[t.index]));
  const f32 most = simd_max(t, static_cast<f32>(a[t.index]));
  const u32 odd = simd_ballot(t, a[t.index] % 2u == 1u);
  const u32 next = simd_shuffle(t, a[t.index], (t.lane + 1u) % 32u);
  const u32 pair = simd_shuffle_xor(t, a[t.index], 1u);
  const bool right = sum == (t.simd == 0u ? 496.0f : 1520.0f) &&
                     most == (t.simd == 0u ? 31.0f : 63.0f) && odd == 0xaaaaaaaau &&
                     next == t.simd * 32u + (t.lane + 1u) % 32u && pair == (t.index ^ 1u);
  b[t.index] = right ? 1u : 0u;
}

TEST(Machine, ExchangesWithinSimdGroups) {
  Problem problem;
  for (u32 i = 0; i < 64; ++i) problem.a[i] = i;
  ASSERT_TRUE(problem.run(&Unpack<exchanges>::call, 5).ok());
  EXPECT_EQ(problem.b, std::vector<u32>(64, 1));
}

MF_KERNEL(sums_of_three, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  const f32 base = static_cast<f32>(a[t.index]) * 1.7f;
  f32 together[3];
  for (u32 i = 0u; i < 3u; ++i) together[i] = base / static_cast<f32>(i + 3u);
  simd_sums<3>(t, together);
  u32 same = 1u;
  for (u32 i = 0u; i < 3u; ++i) {
    const f32 alone = simd_sum(t, base / static_cast<f32>(i + 3u));
    if (as_bits(alone) != as_bits(together[i])) same = 0u;
  }
  b[t.index] = same;
}

TEST(Machine, SeveralSumsInOneExchangeHaveTheBitsOfEach) {
  Problem problem;
  for (u32 i = 0; i < 64; ++i) problem.a[i] = i * i;
  ASSERT_TRUE(problem.run(&Unpack<sums_of_three>::call, 5).ok());
  EXPECT_EQ(problem.b, std::vector<u32>(64, 1));
}

// --- Kernels that are wrong ---

MF_KERNEL(without_barrier, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  kept[t.index] = a[t.index];
  barrier(t);
  const u32 other = kept[t.threads - 1u - t.index];
  kept[t.index] = other + 1u;  // others may not have read yet
  barrier(t);
  b[t.index] = kept[t.index];
}

TEST(Machine, ReportsARaceWhereABarrierIsMissing) {
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    expect_words(report_of<without_barrier>({}, seed),
                 {"kernel tried", "group (0, 0, 0)", "race on shared bytes", "thread"});
  }
}

MF_KERNEL(barrier_of_the_simd_group, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  kept[t.index] = a[t.index];
  simd_barrier(t);
  b[t.index] = kept[t.index ^ 1u];  // of this SIMD group: in order
}
MF_KERNEL(barrier_of_one_simd_group_only, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  kept[t.index] = a[t.index];
  simd_barrier(t);
  b[t.index] = kept[t.index ^ 32u];  // of the other SIMD group: not in order
}

TEST(Machine, ABarrierOfASimdGroupOrdersThatGroupOnly) {
  EXPECT_EQ(report_of<barrier_of_the_simd_group>(), "");
  // One order of threads reads what is not there yet, another reads it unordered.
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EXPECT_NE(report_of<barrier_of_one_simd_group_only>({}, seed), "") << seed;
  }
}

MF_KERNEL(read_by_three, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  if (t.index == 0u) kept[0] = a[0];
  barrier(t);
  if (t.index == 0u || t.index == 32u) b[t.index] = kept[0];
  simd_barrier(t);
  if (t.index == 1u) b[t.index] = kept[0];
  simd_barrier(t);
  if (t.index == 0u) kept[0] = 1u;  // after the other reads of its SIMD group, beside thread 32's
}
MF_KERNEL(read_by_one_simd_group, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  if (t.index == 0u) kept[0] = a[0];
  barrier(t);
  if (t.simd == 0u) b[t.index] = kept[0];
  simd_barrier(t);
  if (t.index == 1u) b[t.index] = kept[0];
  if (t.index == 1u) kept[0] = 1u;  // after all other reads
}

TEST(Machine, ReportsARaceWithTheSecondOfThreeReaders) {
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    expect_words(report_of<read_by_three>({}, seed), {"race on shared bytes 0..3"});
  }
  expect_words(report_of<read_by_three>({}, 0), {"thread 0: race", "writes what thread 32 read"});
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    EXPECT_EQ(report_of<read_by_one_simd_group>({}, seed), "");
  }
}

MF_KERNEL(diverges_at_barrier, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  if (t.index >= 40u) return;
  barrier(t);
  b[t.index] = a[t.index];
}

TEST(Machine, ReportsThreadsThatLeaveBeforeABarrier) {
  expect_words(
      report_of<diverges_at_barrier>(),
      {"divergence", "thread 0 waits at barrier (machine_test.cc:", "thread 40 has finished"});
}

MF_KERNEL(diverges_at_exchange, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  if (t.lane < 5u) return;
  b[t.index] = simd_shuffle(t, a[t.index], 0u);
}

TEST(Machine, ReportsLanesMissingFromAnExchange) {
  expect_words(report_of<diverges_at_exchange>(),
               {"divergence", "waits at simd_shuffle", "has finished"});
}

MF_KERNEL(waits_at_two_barriers, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  if (a[t.index] == 0u && t.index % 2u == 0u) {
    barrier(t);
  } else {
    barrier(t);
  }
  b[t.index] = 0u;
}

MF_KERNEL(exchanges_on_one_line_of_two_files, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  const SourceLine place = t.lane < 16u ? SourceLine{"one.h", 7} : SourceLine{"another.h", 7};
  b[t.index] = simd_shuffle(t, a[t.index], 0u, place);
}

TEST(Machine, ReportsLanesAtExchangesOnOneLineOfTwoFiles) {
  expect_words(report_of<exchanges_on_one_line_of_two_files>({}, 0),
               {"divergence",
                "thread 0 waits at simd_shuffle (one.h:7) while thread 16 waits at "
                "simd_shuffle (another.h:7)"});
}

MF_KERNEL(shuffles_of_three, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  f32 together[3];
  for (u32 i = 0u; i < 3u; ++i) together[i] = static_cast<f32>(a[t.index] + i);
  simd_shuffles_xor<3>(t, together, 5u);
  u32 same = 1u;
  for (u32 i = 0u; i < 3u; ++i) {
    if (together[i] != static_cast<f32>(a[t.index ^ 5u] + i)) same = 0u;
  }
  b[t.index] = same;
}

TEST(Machine, ShufflesSeveralNumbersInOneExchange) {
  Problem problem;
  for (u32 i = 0; i < 64; ++i) problem.a[i] = i * i;
  ASSERT_TRUE(problem.run(&Unpack<shuffles_of_three>::call, 5).ok());
  EXPECT_EQ(problem.b, std::vector<u32>(64, 1));
}

MF_KERNEL(sums_of_two_or_three, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  f32 values[3] = {1.0f, 2.0f, 3.0f};
  const SourceLine place = {"one.h", 7};
  if (t.lane < 16u) {
    simd_sums<2>(t, values, place);
  } else {
    simd_sums<3>(t, values, place);
  }
  b[t.index] = a[t.index] + as_bits(values[0]);
}

TEST(Machine, ReportsLanesThatSumOtherNumbersOfValues) {
  expect_words(report_of<sums_of_two_or_three>(), {"divergence", "waits at simd_sums (one.h:7)"});
}

TEST(Machine, ReportsThreadsAtDifferentBarriers) {
  expect_words(report_of<waits_at_two_barriers>(), {"divergence", "thread 0 waits", "thread 1"});
}

MF_KERNEL(writes_outside, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  b[t.index + 1u] = a[t.index];
}
MF_KERNEL(reads_before, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  b[t.index] = a[static_cast<i32>(t.index) - 1];
}

TEST(Machine, ReportsAccessOutsideABinding) {
  expect_words(report_of<writes_outside>(),
               {"kernel tried", "thread 63", "out of bounds", "binding 1", "index 64 of 64"});
  expect_words(report_of<reads_before>(), {"thread 0", "out of bounds", "binding 0", "index -1"});
}

MF_KERNEL(reads_unwritten, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 0u);
  if (t.index != 7u) kept[t.index] = a[t.index];
  barrier(t);
  b[t.index] = kept[t.index];
}

TEST(Machine, ReportsReadsOfSharedMemoryThatNobodyWrote) {
  expect_words(report_of<reads_unwritten>(), {"thread 7", "shared bytes 28..31", "nobody wrote"});
}

TEST(Machine, SharedMemoryOfOneGroupIsNotWrittenForTheNext) {
  Problem problem;
  problem.groups = {2, 1, 1};
  problem.a[0] = 1;
  expect_words(report_of<reads_unwritten>(problem), {"nobody wrote"});
}

MF_KERNEL(shared_outside, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_SHARED(u32) kept = MF_SHARED_AT(t, u32, 4u);
  kept[t.index] = a[t.index];
  b[t.index] = kept[t.index];
}

TEST(Machine, ReportsSharedMemoryThatWasNotAskedFor) {
  expect_words(report_of<shared_outside>(), {"thread 63", "shared byte 256 of 256"});
}

MF_KERNEL(loads_four_unaligned, Nothing, MF_READ(0, u32, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  b[t.index] = load4(a + 1).v[0];
}

TEST(Machine, ReportsMisalignedWideLoads) {
  expect_words(report_of<loads_four_unaligned>(), {"misaligned", "binding 0", "16 bytes"});
}

MF_KERNEL(follows_an_address, Nothing, MF_READ(0, u64, a), MF_WRITE(1, u32, b)) {
  MF_THREAD;
  MF_GLOBAL(const u32) found = MF_AT(t, const u32, a[0]);
  b[t.index] = found[t.index];
}

TEST(Machine, FollowsAddressesIntoAllocationsOnly) {
  std::vector<u32> target(64, 5);
  const auto begin = reinterpret_cast<uintptr_t>(target.data());
  Problem problem;
  std::memcpy(problem.a.data(), &begin, sizeof(begin));
  expect_words(report_of<follows_an_address>(problem), {"lies in no allocation"});
  problem.allocations[begin] = begin + 32 * sizeof(u32);
  expect_words(report_of<follows_an_address>(problem),
               {"out of bounds", "through an address", "of 32"});
  problem.allocations[begin] = begin + 64 * sizeof(u32);
  EXPECT_EQ(report_of<follows_an_address>(problem), "");
}

}  // namespace
}  // namespace moeflux::gpu::emulator
