// Reads and reader after io_uring_enter itself has failed.
#include "io/uring/uring_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <random>

#include "base/units.h"
#include "tests/support/io/refused_entries.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

class UringEntryTest : public ::testing::Test {
 protected:
  static constexpr size_t kReads = 24;
  static constexpr size_t kReadBytes = 20'000;

  void SetUp() override {
    std::mt19937_64 random(7);
    for (char& byte : bytes_) byte = static_cast<char>(random());
    testing::write_bytes(folder_ / "file", bytes_);
    auto file = open_file(folder_ / "file");
    ASSERT_TRUE(file.ok());
    file_ = std::move(file).value();
    auto made = make();
    if (!made.ok()) GTEST_SKIP() << "hardware: " << made.error().to_string();
    reader_ = std::move(made).value();
  }

  Result<std::unique_ptr<AsyncReader>> make() {
    return make_uring_reader(
        {.scheduler = {.chunk_bytes = 8 * kKiB, .depth = 8, .speculative_depth = 2},
         .entry_filter = &entries_});
  }
  void submit_all() {
    std::fill(into_.begin(), into_.end(), '\0');
    std::vector<ReadRequest> requests;
    for (size_t i = 0; i < kReads; ++i) {
      requests.push_back(
          {.file = file_.get(),
           .offset = i * kReadBytes,
           .into = std::as_writable_bytes(std::span(into_).subspan(i * kReadBytes, kReadBytes)),
           .tag = i});
    }
    reader_->submit(requests);
  }
  /// How many reads failed; all others have their bytes.
  size_t failures(int number) {
    std::map<uint64_t, Status> statuses;
    while (reader_->in_flight() > 0) {
      for (ReadCompletion& completion : reader_->wait()) {
        EXPECT_TRUE(statuses.emplace(completion.tag, std::move(completion.status)).second);
      }
    }
    EXPECT_EQ(statuses.size(), kReads);
    size_t failed = 0;
    for (const auto& [tag, status] : statuses) {
      if (status.ok()) {
        EXPECT_TRUE(std::equal(into_.begin() + static_cast<ptrdiff_t>(tag * kReadBytes),
                               into_.begin() + static_cast<ptrdiff_t>((tag + 1) * kReadBytes),
                               bytes_.begin() + static_cast<ptrdiff_t>(tag * kReadBytes)));
        continue;
      }
      ++failed;
      EXPECT_EQ(status.error().code(), ErrorCode::kIo);
      const std::string& message = status.error().message();
      for (const std::string& piece :
           {folder_ / "file", std::string("io_uring_enter"), "errno " + std::to_string(number)}) {
        EXPECT_NE(message.find(piece), std::string::npos) << message;
      }
    }
    return failed;
  }

  testing::TempFolder folder_;
  std::string bytes_ = std::string(kReads * kReadBytes, '\0');
  std::string into_ = std::string(kReads * kReadBytes, '\0');
  RefusedEntries entries_;
  std::unique_ptr<File> file_;
  std::unique_ptr<AsyncReader> reader_;
};

TEST_F(UringEntryTest, AnErrnoNeverSeenFailsItsReadsByNameAndTheReaderGoesOn) {
  for (const int number : {EINVAL, EEXIST, EFAULT, ENXIO, 53 /* EBADR */}) {
    for (const int allowed : {0, 1, 2, 5}) {
      entries_.refuse_after(allowed, 1, number);
      submit_all();
      const size_t failed = failures(number);
      EXPECT_EQ(failed > 0, entries_.refused() > 0) << number << " after " << allowed;
      if (allowed == 0) {
        EXPECT_GT(failed, 0u);
      }
      submit_all();
      EXPECT_EQ(failures(number), 0u) << "after errno " << number;
    }
  }
}

TEST_F(UringEntryTest, RegionsStayRegisteredAfterAFailure) {
  const std::span<std::byte> region = std::as_writable_bytes(std::span(into_));
  const Status registered = reader_->register_buffers(std::span(&region, 1));
  if (!registered.ok()) {  // reads go on without
    EXPECT_EQ(registered.error().code(), ErrorCode::kResourceExhausted);
  }
  entries_.refuse_after(1, 1, EINVAL);
  submit_all();
  (void)failures(EINVAL);
  submit_all();
  EXPECT_EQ(failures(EINVAL), 0u);
}

TEST_F(UringEntryTest, MemoryThatIsShortForAMomentIsNoError) {
  for (const int number : {ENOMEM, EAGAIN, EBUSY, EINTR}) {
    entries_.refuse_after(0, 7, number);
    submit_all();
    EXPECT_EQ(failures(number), 0u) << number;
    EXPECT_EQ(entries_.refused(), 7);
  }
}

TEST_F(UringEntryTest, MemoryThatStaysShortFailsReads) {
  entries_.refuse_after(0, RefusedEntries::kForever, ENOMEM);
  submit_all();
  const std::vector<ReadCompletion> first = reader_->wait();
  ASSERT_FALSE(first.empty());
  for (const ReadCompletion& completion : first) {
    ASSERT_FALSE(completion.status.ok());
    EXPECT_NE(completion.status.error().message().find("errno 12"), std::string::npos);
  }
}

TEST_F(UringEntryTest, AReaderThatCannotEnterEndsNevertheless) {
  entries_.refuse_after(1, RefusedEntries::kForever, ENOMEM);
  submit_all();
  reader_.reset();
  EXPECT_LE(entries_.refused(), 1);
}

}  // namespace
}  // namespace moeflux
