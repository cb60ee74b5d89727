#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/io/faulty_file.h"
#include "tests/support/io/faulty_reader.h"
#include "tests/support/io/memory_file.h"
#include "tests/support/io/pread_reader.h"

namespace moeflux {
namespace {

constexpr size_t kReads = 50;
constexpr size_t kReadBytes = 16;

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 11 + 1);
  return bytes;
}

struct Transcript {
  std::vector<std::vector<uint64_t>> waits;  // tags by wait() call
  std::vector<uint64_t> failed;              // sorted
  std::vector<std::byte> bytes;

  std::vector<uint64_t> order() const {
    std::vector<uint64_t> tags;
    for (const auto& wait : waits) tags.insert(tags.end(), wait.begin(), wait.end());
    return tags;
  }
};

/// Submits kReads neighbouring reads at once and collects all of them.
Transcript run_all(FaultyReader& reader, const File& file) {
  Transcript run;
  run.bytes.resize(kReads * kReadBytes);
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < kReads; ++i) {
    const size_t begin = i * kReadBytes;
    requests.push_back({&file, begin, std::span(run.bytes).subspan(begin, kReadBytes), i});
  }
  reader.submit(requests);
  while (reader.in_flight() > 0) {
    run.waits.emplace_back();
    for (const ReadCompletion& completion : reader.wait()) {
      run.waits.back().push_back(completion.tag);
      if (!completion.status.ok()) run.failed.push_back(completion.tag);
    }
  }
  std::sort(run.failed.begin(), run.failed.end());
  return run;
}

class FaultyReaderTest : public ::testing::Test {
 protected:
  Transcript transcribe(FaultyReaderOptions options) {
    FaultyReader reader(std::move(options));
    return run_all(reader, file_);
  }
  static std::vector<uint64_t> submission_order() {
    std::vector<uint64_t> tags(kReads);
    std::iota(tags.begin(), tags.end(), 0);
    return tags;
  }

  std::vector<std::byte> content_ = pattern(kReads * kReadBytes);
  MemoryFile file_{"memory", content_};
};

TEST_F(FaultyReaderTest, ReordersButLosesNothing) {
  const Transcript run = transcribe({.seed = 3});
  EXPECT_NE(run.order(), submission_order());
  auto sorted = run.order();
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, submission_order());
  EXPECT_EQ(run.bytes, content_);
  EXPECT_EQ(transcribe({.seed = 3, .reorder = false}).order(), submission_order());
}

TEST_F(FaultyReaderTest, OneSeedGivesOneRun) {
  const FaultyReaderOptions options{
      .seed = 9, .delay_waits_max = 5, .completions_per_wait_max = 3, .failure_probability = 0.2};
  const Transcript first = transcribe(options);
  const Transcript second = transcribe(options);
  EXPECT_EQ(first.waits, second.waits);
  EXPECT_EQ(first.failed, second.failed);
  FaultyReaderOptions other = options;
  other.seed = 10;
  EXPECT_NE(transcribe(other).waits, first.waits);
}

TEST_F(FaultyReaderTest, DelaysSpreadCompletionsAndEveryWaitReturnsSome) {
  const Transcript run = transcribe({.delay_waits_max = 4});
  EXPECT_EQ(run.waits.size(), 5u);
  for (const auto& wait : run.waits) EXPECT_FALSE(wait.empty());
  EXPECT_EQ(transcribe({}).waits.size(), 1u);
}

TEST_F(FaultyReaderTest, LimitsCompletionsOfOneWait) {
  const Transcript run = transcribe({.completions_per_wait_max = 7});
  for (const auto& wait : run.waits) EXPECT_LE(wait.size(), 7u);
  EXPECT_EQ(run.waits.size(), (kReads + 6) / 7);
}

TEST_F(FaultyReaderTest, FailsTheReadsItWasTold) {
  const Transcript run = transcribe({.failing_reads = {0, 17, 49, 1000}});
  EXPECT_EQ(run.failed, (std::vector<uint64_t>{0, 17, 49}));
  for (size_t i = 0; i < kReads; ++i) {
    const bool failed = std::binary_search(run.failed.begin(), run.failed.end(), i);
    const std::byte expected = failed ? std::byte{0xA5} : content_[i * kReadBytes];
    EXPECT_EQ(run.bytes[i * kReadBytes], expected) << i;
  }
}

TEST_F(FaultyReaderTest, FailsAboutAsManyAsTheProbabilitySays) {
  EXPECT_TRUE(transcribe({.failure_probability = 0}).failed.empty());
  EXPECT_EQ(transcribe({.failure_probability = 1}).failed.size(), kReads);
  const size_t some = transcribe({.seed = 4, .failure_probability = 0.5}).failed.size();
  EXPECT_GT(some, kReads / 4);
  EXPECT_LT(some, kReads * 3 / 4);
}

TEST_F(FaultyReaderTest, PiecesOfAReadAddUpToAllOfIt) {
  EXPECT_EQ(transcribe({.piece_bytes_max = 3}).bytes, content_);
}

TEST_F(FaultyReaderTest, BytesAreWrongUntilTheReadHasCompleted) {
  FaultyReader reader({.delay_waits_max = 3, .completions_per_wait_max = 1});
  std::vector<std::byte> into(content_.size());
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < 5; ++i) {
    requests.push_back({&file_, i, std::span(into).subspan(i, 1), i});
  }
  reader.submit(requests);
  std::vector<bool> done(5, false);
  while (reader.in_flight() > 0) {
    for (const auto& completion : reader.wait()) done[completion.tag] = true;
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(into[i], done[i] ? content_[i] : std::byte{0xA5}) << i;
    }
  }
}

TEST_F(FaultyReaderTest, RunOverThreadsIsTheSameRun) {
  const FaultyReaderOptions options{
      .seed = 5, .delay_waits_max = 3, .completions_per_wait_max = 4, .failure_probability = 0.1};
  const Transcript alone = transcribe(options);
  for (int repeat = 0; repeat < 5; ++repeat) {
    FaultyReader reader(options, make_pread_reader(4));
    const Transcript threaded = run_all(reader, file_);
    EXPECT_EQ(threaded.waits, alone.waits);
    EXPECT_EQ(threaded.failed, alone.failed);
    EXPECT_EQ(threaded.bytes, alone.bytes);
    EXPECT_EQ(reader.reads_submitted(), kReads);
    EXPECT_EQ(reader.reads_failed(), alone.failed.size());
  }
}

TEST_F(FaultyReaderTest, ErrorsOfTheFileItselfArrive) {
  const MemoryFile too_short("short", std::span<const std::byte>(content_).first(100));
  for (const bool threaded : {false, true}) {
    FaultyReader reader({}, threaded ? make_pread_reader(2) : nullptr);
    const Transcript run = run_all(reader, too_short);
    EXPECT_EQ(run.failed.size(), kReads - 100 / kReadBytes) << threaded;
  }
}

TEST_F(FaultyReaderTest, PollMayReturnNothingAndEveryReadStillComes) {
  FaultyReader reader({.delay_waits_max = 6, .completions_per_wait_max = 5});
  std::vector<std::byte> into(content_.size());
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < kReads; ++i) {
    requests.push_back({&file_, i, std::span(into).subspan(i, 1), i});
  }
  reader.submit(requests);
  std::vector<int> arrivals(kReads, 0);
  while (reader.in_flight() > 0) {
    for (const ReadCompletion& completion : reader.poll()) ++arrivals[completion.tag];
  }
  EXPECT_EQ(std::count(arrivals.begin(), arrivals.end(), 1), static_cast<ptrdiff_t>(kReads));
}

TEST_F(FaultyReaderTest, CancelledReadsCompleteAsSuchWhetherOrNotAnInnerReaderHadThem) {
  for (const bool threaded : {false, true}) {
    FaultyReader reader({.delay_waits_max = 3}, threaded ? make_pread_reader(2) : nullptr);
    std::vector<std::byte> into(kReads);
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < kReads; ++i) {
      requests.push_back({&file_, i, std::span(into).subspan(i, 1), i % 5});
    }
    reader.submit(requests);
    const size_t cancelled = reader.cancel(2);
    EXPECT_GT(cancelled, 0u);
    EXPECT_LT(cancelled, kReads / 5);
    size_t as_cancelled = 0;
    while (reader.in_flight() > 0) {
      for (const ReadCompletion& completion : reader.wait()) {
        if (completion.status.ok()) continue;
        EXPECT_EQ(completion.tag, 2u);
        EXPECT_EQ(completion.status.error().code(), ErrorCode::kCancelled);
        ++as_cancelled;
      }
    }
    EXPECT_EQ(as_cancelled, cancelled);
  }
}

TEST_F(FaultyReaderTest, PromotedReadsAreNoLongerHeldBack) {
  FaultyReader reader({.seed = 2, .delay_waits_max = 50});
  std::vector<std::byte> into(kReads);
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < kReads; ++i) {
    requests.push_back({&file_, i, std::span(into).subspan(i, 1), i, ReadPriority::kSpeculative});
  }
  reader.submit(requests);
  EXPECT_EQ(reader.promote(31), 1u);
  EXPECT_EQ(reader.promote(31), 0u);
  const auto first = reader.poll();
  EXPECT_TRUE(std::ranges::any_of(first, [](const auto& c) { return c.tag == 31; }));
  EXPECT_LT(first.size(), kReads / 2);
}

TEST(FaultyFile, FailsReadsThatTouchABadRangeUntilItHeals) {
  const auto content = pattern(100);
  const FaultyFile file(std::make_unique<MemoryFile>("memory", content), {{10, 20, 2}, {50, 51}});
  EXPECT_EQ(file.path(), "memory");
  EXPECT_EQ(file.size_bytes(), 100u);
  std::vector<std::byte> into(10);
  EXPECT_TRUE(file.read_at(0, into).ok());
  EXPECT_TRUE(file.read_at(20, into).ok());
  const Status status = file.read_at(5, into);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIo);
  EXPECT_FALSE(file.read_at(19, into).ok());
  EXPECT_TRUE(file.read_at(15, into).ok());
  EXPECT_TRUE(std::equal(into.begin(), into.end(), content.begin() + 15));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(file.read_at(45, into).ok());
}

TEST(MemoryFile, ReadsInsideAndFailsBeyondItsBytes) {
  const MemoryFile file("memory", "0123456789");
  std::string text(3, '\0');
  EXPECT_TRUE(file.read_at(7, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "789");
  for (const uint64_t offset : {uint64_t{8}, uint64_t{11}, UINT64_MAX}) {
    const Status status = file.read_at(offset, std::as_writable_bytes(std::span(text)));
    ASSERT_FALSE(status.ok()) << offset;
    EXPECT_EQ(status.error().code(), ErrorCode::kIo);
  }
}

}  // namespace
}  // namespace moeflux
