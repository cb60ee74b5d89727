#include "io/read_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

constexpr size_t kChunk = 2 * kDirectAlignment;

class ReadSchedulerTest : public ::testing::Test {
 protected:
  ReadRequest request(uint64_t tag, ReadPriority priority = ReadPriority::kDemand,
                      size_t size = 100, uint64_t offset = 0) {
    return {.file = &file_,
            .offset = offset,
            .into = std::span(memory_).first(size),
            .tag = tag,
            .priority = priority};
  }
  /// Starts what may start; one letter by tag: a for 0.
  std::vector<ReadChunk> start(ReadScheduler& scheduler) {
    std::vector<ReadChunk> chunks;
    while (const auto chunk = scheduler.next()) chunks.push_back(*chunk);
    return chunks;
  }
  static std::vector<uint64_t> tags(std::vector<ReadCompletion> completions) {
    std::vector<uint64_t> found;
    for (const ReadCompletion& completion : completions) found.push_back(completion.tag);
    return found;
  }

  MemoryFile file_{"memory", "0123456789"};
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 20);
};

constexpr ReadPriority kDemand = ReadPriority::kDemand;
constexpr ReadPriority kSpeculative = ReadPriority::kSpeculative;

TEST_F(ReadSchedulerTest, ChunksCoverARequestOnceAndBreakOnTheAlignment) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{4095}, uint64_t{12345}}) {
    for (const size_t size : {size_t{1}, kChunk, kChunk + 1, 5 * kChunk + 77, 9 * kChunk}) {
      ReadScheduler scheduler({.chunk_bytes = kChunk});
      scheduler.add(request(7, kDemand, size, offset));
      const std::vector<ReadChunk> chunks = start(scheduler);
      uint64_t at = offset;
      for (const ReadChunk& chunk : chunks) {
        ASSERT_EQ(chunk.offset, at);
        ASSERT_EQ(chunk.into.data(), memory_.data() + (at - offset));
        ASSERT_GE(chunk.into.size(), 1u);
        ASSERT_LE(chunk.into.size(), kChunk);
        at += chunk.into.size();
        ASSERT_TRUE(at == offset + size || at % kDirectAlignment == 0) << offset << " " << size;
      }
      EXPECT_EQ(at, offset + size);
      EXPECT_LE(chunks.size(), size / kChunk + 2);
    }
  }
}

TEST_F(ReadSchedulerTest, ChunksOfARequestAreAboutEqual) {
  ReadScheduler scheduler({.chunk_bytes = 4 * kDirectAlignment});
  scheduler.add(request(1, kDemand, 9 * kDirectAlignment));
  const std::vector<ReadChunk> chunks = start(scheduler);
  ASSERT_EQ(chunks.size(), 3u);
  for (const ReadChunk& chunk : chunks) EXPECT_EQ(chunk.into.size(), 3 * kDirectAlignment);
}

TEST_F(ReadSchedulerTest, ARequestCompletesWithItsLastChunk) {
  ReadScheduler scheduler({.chunk_bytes = kChunk});
  scheduler.add(request(7, kDemand, 3 * kChunk));
  const std::vector<ReadChunk> chunks = start(scheduler);
  ASSERT_EQ(chunks.size(), 3u);
  scheduler.finish(chunks[2], {});
  scheduler.finish(chunks[0], {});
  EXPECT_FALSE(scheduler.has_completed());
  EXPECT_EQ(scheduler.in_flight(), 1u);
  scheduler.finish(chunks[1], {});
  EXPECT_EQ(tags(scheduler.take_completed()), std::vector<uint64_t>{7});
  EXPECT_EQ(scheduler.in_flight(), 0u);
}

TEST_F(ReadSchedulerTest, AnEmptyRequestCompletesAtOnce) {
  ReadScheduler scheduler({});
  scheduler.add(request(3, kDemand, 0));
  EXPECT_FALSE(scheduler.next());
  EXPECT_EQ(tags(scheduler.take_completed()), std::vector<uint64_t>{3});
}

TEST_F(ReadSchedulerTest, AFailureEndsARequestOnceStartedChunksAreOver) {
  ReadScheduler scheduler({.chunk_bytes = kChunk, .depth = 2});
  scheduler.add(request(7, kDemand, 4 * kChunk));
  scheduler.add(request(8));
  const std::vector<ReadChunk> chunks = start(scheduler);
  ASSERT_EQ(chunks.size(), 2u);
  scheduler.finish(chunks[1], Error(ErrorCode::kIo, "broken"));
  EXPECT_FALSE(scheduler.has_completed());  // the other chunk still writes
  scheduler.finish(chunks[0], {});
  const std::vector<ReadCompletion> completions = scheduler.take_completed();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].tag, 7u);
  ASSERT_FALSE(completions[0].status.ok());
  EXPECT_EQ(completions[0].status.error().message(), "broken");
  const std::vector<ReadChunk> rest = start(scheduler);
  ASSERT_EQ(rest.size(), 1u);  // the failed request's other chunks never start
  scheduler.finish(rest[0], {});
  EXPECT_EQ(tags(scheduler.take_completed()), std::vector<uint64_t>{8});
}

TEST_F(ReadSchedulerTest, DemandStartsBeforeSpeculationSubmittedEarlier) {
  ReadScheduler scheduler({.depth = 1});
  scheduler.add(request(1, kSpeculative));
  scheduler.add(request(2, kDemand));
  scheduler.add(request(3, kDemand));
  std::vector<uint64_t> order;
  while (scheduler.in_flight() > 0) {
    scheduler.finish(*scheduler.next(), {});
    order.push_back(tags(scheduler.take_completed()).front());
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{2, 3, 1}));
}

TEST_F(ReadSchedulerTest, SpeculationLeavesRoomForDemand) {
  ReadScheduler scheduler({.depth = 4, .speculative_depth = 1});
  for (uint64_t tag = 0; tag < 5; ++tag) scheduler.add(request(tag, kSpeculative));
  const std::vector<ReadChunk> speculative = start(scheduler);
  EXPECT_EQ(speculative.size(), 1u);
  for (uint64_t tag = 0; tag < 5; ++tag) scheduler.add(request(10 + tag, kDemand));
  EXPECT_EQ(start(scheduler).size(), 3u);
  scheduler.finish(speculative[0], {});
  const std::vector<ReadChunk> next = start(scheduler);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].priority, kDemand);
}

TEST_F(ReadSchedulerTest, PromotedReadsStartAsDemandBehindEarlierDemand) {
  ReadScheduler scheduler({.depth = 1, .speculative_depth = 1});
  for (uint64_t tag = 1; tag <= 3; ++tag) scheduler.add(request(tag, kSpeculative));
  scheduler.add(request(4, kDemand));
  EXPECT_EQ(scheduler.promote(2), 1u);
  EXPECT_EQ(scheduler.promote(2), 0u);
  EXPECT_EQ(scheduler.promote(99), 0u);
  std::vector<uint64_t> order;
  while (scheduler.in_flight() > 0) {
    scheduler.finish(*scheduler.next(), {});
    order.push_back(tags(scheduler.take_completed()).front());
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{4, 2, 1, 3}));
}

TEST_F(ReadSchedulerTest, ARequestPromotedHalfwayFreesTheSpeculativeDepthItHeld) {
  ReadScheduler scheduler({.chunk_bytes = kChunk, .depth = 8, .speculative_depth = 1});
  scheduler.add(request(1, kSpeculative, 3 * kChunk));
  std::vector<ReadChunk> chunks = start(scheduler);
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(scheduler.promote(1), 1u);
  scheduler.add(request(2, kSpeculative));
  const std::vector<ReadChunk> more = start(scheduler);
  ASSERT_EQ(more.size(), 2u);  // both rest chunks as demand; the first still counts as speculation
  scheduler.finish(chunks[0], {});
  EXPECT_EQ(start(scheduler).size(), 1u);
  for (const ReadChunk& chunk : more) scheduler.finish(chunk, {});
  EXPECT_EQ(tags(scheduler.take_completed()), std::vector<uint64_t>{1});
}

TEST_F(ReadSchedulerTest, CancelEndsWhatHasNotBegunAndOnlyThat) {
  ReadScheduler scheduler({.chunk_bytes = kChunk, .depth = 1});
  scheduler.add(request(5, kDemand, 2 * kChunk));
  const std::optional<ReadChunk> begun = scheduler.next();
  scheduler.add(request(5, kDemand));
  scheduler.add(request(5, kSpeculative));
  scheduler.add(request(6, kSpeculative));
  EXPECT_EQ(scheduler.cancel(5), 2u);
  const std::vector<ReadCompletion> cancelled = scheduler.take_completed();
  ASSERT_EQ(cancelled.size(), 2u);
  for (const ReadCompletion& completion : cancelled) {
    EXPECT_EQ(completion.tag, 5u);
    ASSERT_FALSE(completion.status.ok());
    EXPECT_EQ(completion.status.error().code(), ErrorCode::kCancelled);
  }
  scheduler.finish(*begun, {});
  scheduler.finish(*scheduler.next(), {});
  EXPECT_EQ(tags(scheduler.take_completed()), std::vector<uint64_t>{5});
  EXPECT_EQ(scheduler.in_flight(), 1u);
}

TEST_F(ReadSchedulerTest, AbandonLeavesStartedChunksToFinish) {
  ReadScheduler scheduler({.chunk_bytes = kChunk, .depth = 1});
  scheduler.add(request(1, kDemand, 2 * kChunk));
  scheduler.add(request(2));
  const std::optional<ReadChunk> begun = scheduler.next();
  scheduler.abandon();
  scheduler.finish(*begun, {});
  EXPECT_FALSE(scheduler.next());
  EXPECT_EQ(scheduler.chunks_started(), 0u);
}

}  // namespace
}  // namespace moeflux
