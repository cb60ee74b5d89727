#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "tests/support/io/faulty_file.h"
#include "tests/support/io/memory_file.h"
#include "tests/support/io/pread_reader.h"

namespace moeflux {
namespace {

std::vector<std::byte> pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  return bytes;
}

/// Blocks every read until opened.
class GatedFile final : public File {
 public:
  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return 1 << 20; }
  Status read_at(uint64_t, std::span<std::byte> into) const override {
    std::unique_lock lock(mutex_);
    ++reads_begun_;
    begun_.notify_all();
    opened_.wait(lock, [this] { return open_; });
    std::fill(into.begin(), into.end(), std::byte{1});
    return {};
  }
  void wait_until_begun(int reads) {
    std::unique_lock lock(mutex_);
    begun_.wait(lock, [&] { return reads_begun_ >= reads; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  int reads_begun() const {
    const std::lock_guard lock(mutex_);
    return reads_begun_;
  }

 private:
  std::string path_ = "gated";
  mutable std::mutex mutex_;
  mutable std::condition_variable begun_;
  mutable std::condition_variable opened_;
  mutable int reads_begun_ = 0;
  bool open_ = false;
};

TEST(PreadReader, EveryReadOfManyArrivesOnceWithItsBytes) {
  const auto content = pattern(1 << 16);
  const MemoryFile file("memory", content);
  for (const int threads : {1, 4}) {
    const auto reader = make_pread_reader(threads);
    constexpr size_t kReads = 2000;
    constexpr size_t kBytes = 37;
    std::vector<std::vector<std::byte>> into(kReads, std::vector<std::byte>(kBytes));
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < kReads; ++i) requests.push_back({&file, i * 31, into[i], i});
    std::vector<int> arrivals(kReads, 0);
    size_t submitted = 0;
    while (submitted < kReads || reader->in_flight() > 0) {
      const size_t count = std::min<size_t>(kReads - submitted, 100);
      reader->submit(std::span(requests).subspan(submitted, count));
      submitted += count;
      for (const ReadCompletion& completion : reader->wait()) {
        ASSERT_TRUE(completion.status.ok());
        ++arrivals[completion.tag];
      }
    }
    for (size_t i = 0; i < kReads; ++i) {
      ASSERT_EQ(arrivals[i], 1) << "read " << i << ", threads " << threads;
      ASSERT_TRUE(std::equal(into[i].begin(), into[i].end(), content.begin() + i * 31)) << i;
    }
  }
}

TEST(PreadReader, AFailedReadIsACompletionAndTheOthersGoOn) {
  const auto content = pattern(100);
  const FaultyFile file(std::make_unique<MemoryFile>("memory", content), {{40, 41}});
  const auto reader = make_pread_reader(2);
  std::vector<std::byte> into(100);
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < 10; ++i) {
    requests.push_back({&file, i * 10, std::span(into).subspan(i * 10, 10), i});
  }
  reader->submit(requests);
  size_t failed = 0;
  while (reader->in_flight() > 0) {
    for (const ReadCompletion& completion : reader->wait()) {
      EXPECT_EQ(completion.status.ok(), completion.tag != 4) << completion.tag;
      if (!completion.status.ok()) {
        ++failed;
        EXPECT_EQ(completion.status.error().code(), ErrorCode::kIo);
      }
    }
  }
  EXPECT_EQ(failed, 1u);
}

TEST(PreadReader, SubmitReturnsWhileReadsAreBlocked) {
  GatedFile file;
  const auto reader = make_pread_reader(1);
  std::vector<std::byte> into(3);
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < 3; ++i) requests.push_back({&file, 0, std::span(into).subspan(i, 1), i});
  reader->submit(requests);
  file.wait_until_begun(1);
  EXPECT_EQ(reader->in_flight(), 3u);
  file.open();
  size_t arrived = 0;
  while (reader->in_flight() > 0) arrived += reader->wait().size();
  EXPECT_EQ(arrived, 3u);
}

TEST(PreadReader, CancelsAndPromotesWhatHasNotBegun) {
  GatedFile file;
  const auto reader = make_pread_reader(1);
  std::vector<std::byte> into(4, std::byte{0});
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < 4; ++i) requests.push_back({&file, 0, std::span(into).subspan(i, 1), i});
  requests[2].priority = ReadPriority::kSpeculative;
  requests[3].priority = ReadPriority::kSpeculative;
  reader->submit(requests);
  file.wait_until_begun(1);
  EXPECT_EQ(reader->cancel(0), 0u);  // has begun
  EXPECT_EQ(reader->cancel(1), 1u);
  EXPECT_EQ(reader->promote(3), 1u);
  EXPECT_EQ(reader->promote(1), 0u);
  const auto cancelled = reader->poll();  // and does not wait for the gate
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].tag, 1u);
  EXPECT_EQ(cancelled[0].status.error().code(), ErrorCode::kCancelled);
  file.open();
  std::vector<uint64_t> order;
  while (reader->in_flight() > 0) {
    for (const ReadCompletion& completion : reader->wait()) order.push_back(completion.tag);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 3, 2}));
  EXPECT_EQ(into[1], std::byte{0});
}

TEST(PreadReader, DestructorAbandonsQueuedReadsAndFinishesTheOneThatHasBegun) {
  GatedFile file;
  std::vector<std::byte> into(100, std::byte{0});
  {
    const auto reader = make_pread_reader(1);
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < into.size(); ++i) {
      requests.push_back({&file, 0, std::span(into).subspan(i, 1), i});
    }
    reader->submit(requests);
    file.wait_until_begun(1);
    // How many of the queued reads still begin is up to the threads; all that did must have ended.
    file.open();
  }
  const int begun = file.reads_begun();
  EXPECT_GE(begun, 1);
  EXPECT_EQ(std::count(into.begin(), into.end(), std::byte{1}), begun);
}

TEST(PreadReader, DestructorWithIdleThreadsReturns) {
  const auto reader = make_pread_reader(8);
  EXPECT_EQ(reader->in_flight(), 0u);
}

TEST(PreadReader, ReadsRunOnAsManyThreadsAsAskedFor) {
  GatedFile file;
  const auto reader = make_pread_reader(3);
  std::vector<std::byte> into(3);
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < 3; ++i) requests.push_back({&file, 0, std::span(into).subspan(i, 1), i});
  reader->submit(requests);
  file.wait_until_begun(3);  // hangs if one thread reads them in turn
  file.open();
  while (reader->in_flight() > 0) EXPECT_FALSE(reader->wait().empty());
}

}  // namespace
}  // namespace moeflux
