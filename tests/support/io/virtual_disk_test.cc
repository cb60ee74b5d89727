#include "tests/support/io/virtual_disk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/units.h"
#include "tests/support/io/memory_file.h"
#include "tests/support/io/pread_reader.h"

namespace moeflux {
namespace {

constexpr double kLatency = 100e-6;
constexpr double kBandwidth = 1e9;
constexpr size_t kBlob = 1000 * 1000;  // one millisecond

class VirtualDiskTest : public ::testing::Test {
 protected:
  static VirtualDiskOptions options() {
    return {.latency_seconds = kLatency, .bytes_per_second = kBandwidth, .virtual_time = true};
  }
  ReadRequest blob(uint64_t tag, ReadPriority priority = ReadPriority::kDemand) {
    return {.file = &file_,
            .offset = 17,
            .into = std::span(memory_).subspan(tag * kBlob, kBlob),
            .tag = tag,
            .priority = priority};
  }
  void submit(AsyncReader& disk, std::vector<ReadRequest> requests) { disk.submit(requests); }
  bool arrived(uint64_t tag) {
    return std::equal(content_.begin() + 17, content_.begin() + 17 + kBlob,
                      memory_.begin() + static_cast<ptrdiff_t>(tag * kBlob));
  }
  static std::vector<std::byte> pattern() {
    std::vector<std::byte> bytes(kBlob + 100);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 9));
    return bytes;
  }

  std::vector<std::byte> content_ = pattern();
  MemoryFile file_{"memory", content_};
  std::vector<std::byte> memory_ = std::vector<std::byte>(16 * kBlob);
};

TEST_F(VirtualDiskTest, OneReadTakesLatencyAndTransfer) {
  VirtualDisk disk(options());
  submit(disk, {blob(0)});
  EXPECT_TRUE(disk.poll().empty());
  EXPECT_FALSE(arrived(0));
  ASSERT_EQ(disk.wait().size(), 1u);
  EXPECT_NEAR(disk.now(), kLatency + 1e-3, 1e-9);
  EXPECT_TRUE(arrived(0));
}

TEST_F(VirtualDiskTest, LatenciesOfReadsInFlightOverlapAndTransfersDoNot) {
  VirtualDisk disk(options());
  submit(disk, {blob(0), blob(1), blob(2), blob(3)});
  while (disk.in_flight() > 0) EXPECT_EQ(disk.wait().size(), 1u);
  EXPECT_NEAR(disk.now(), kLatency + 4e-3, 1e-9);
}

TEST_F(VirtualDiskTest, ADepthOfOnePaysEveryLatency) {
  VirtualDiskOptions one = options();
  one.scheduler.depth = 1;
  VirtualDisk disk(one);
  submit(disk, {blob(0), blob(1), blob(2), blob(3)});
  while (disk.in_flight() > 0) (void)disk.wait();
  EXPECT_NEAR(disk.now(), 4 * (kLatency + 1e-3), 1e-9);
}

TEST_F(VirtualDiskTest, ReadsGoOnWhileSomebodyComputes) {
  VirtualDiskOptions one = options();
  one.scheduler.depth = 1;
  VirtualDisk disk(one);
  submit(disk, {blob(0), blob(1), blob(2)});
  disk.advance(2.5e-3);
  EXPECT_EQ(disk.poll().size(), 2u);
  disk.advance(5e-3);
  EXPECT_EQ(disk.wait().size(), 1u);
  EXPECT_NEAR(disk.now(), 7.5e-3, 1e-9);  // it had arrived: no time was waited
}

TEST_F(VirtualDiskTest, DemandOvertakesQueuedSpeculationAndPromotionMakesDemand) {
  VirtualDiskOptions narrow = options();
  narrow.scheduler.depth = 1;
  narrow.scheduler.speculative_depth = 1;
  VirtualDisk disk(narrow);
  submit(disk, {blob(0, ReadPriority::kSpeculative), blob(1, ReadPriority::kSpeculative),
                blob(2, ReadPriority::kSpeculative), blob(3)});
  EXPECT_EQ(disk.promote(2), 1u);
  EXPECT_EQ(disk.cancel(1), 1u);
  std::vector<uint64_t> order;
  while (disk.in_flight() > 0) {
    for (const ReadCompletion& completion : disk.wait()) order.push_back(completion.tag);
  }
  // 1 is cancelled, at once; 3 was demand before 2 was; 0 is speculation still.
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 3, 2, 0}));
}

TEST_F(VirtualDiskTest, OneSeedGivesOneRunOfFaults) {
  const auto run = [&](uint64_t seed) {
    VirtualDiskOptions faulty = options();
    faulty.seed = seed;
    faulty.scheduler.chunk_bytes = 64 * kKiB;
    faulty.failure_probability = 0.02;
    faulty.short_read_probability = 0.2;
    faulty.jitter_seconds = 5e-3;
    VirtualDisk disk(faulty);
    std::vector<ReadRequest> requests;
    for (uint64_t tag = 0; tag < 10; ++tag) requests.push_back(blob(tag));
    submit(disk, requests);
    std::vector<std::pair<uint64_t, double>> transcript;
    while (disk.in_flight() > 0) {
      for (const ReadCompletion& completion : disk.wait()) {
        EXPECT_TRUE(!completion.status.ok() || arrived(completion.tag));
        transcript.push_back({completion.tag * 2 + completion.status.ok(), disk.now()});
      }
    }
    return transcript;
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
  const auto transcript = run(5);
  const auto failed = std::ranges::count_if(transcript, [](auto e) { return e.first % 2 == 0; });
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, 10);
}

TEST_F(VirtualDiskTest, RealTimeTakesNoLessThanTheModelSays) {
  VirtualDiskOptions real = options();
  real.virtual_time = false;
  VirtualDisk disk(real);
  const double begin = disk.now();
  submit(disk, {blob(0), blob(1), blob(2)});
  while (disk.in_flight() > 0) (void)disk.wait();
  EXPECT_GE(disk.now() - begin, kLatency + 3e-3 - 1e-6);
}

TEST_F(VirtualDiskTest, AnotherReaderMayMoveTheBytes) {
  for (const bool virtual_time : {true, false}) {
    VirtualDiskOptions over = options();
    over.virtual_time = virtual_time;
    over.scheduler.chunk_bytes = 256 * kKiB;
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    VirtualDisk disk(over, make_pread_reader(3));
    submit(disk, {blob(0), blob(1), blob(2), blob(3)});
    while (disk.in_flight() > 0) {
      for (const ReadCompletion& completion : disk.wait()) {
        EXPECT_TRUE(completion.status.ok());
        EXPECT_TRUE(arrived(completion.tag));
      }
    }
  }
}

}  // namespace
}  // namespace moeflux
