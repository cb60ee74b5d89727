// The promises of AsyncReader, for every mode.
#include "io/reader_factory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <random>

#include "io/aligned_read.h"
#include "tests/support/io/faulty_file.h"
#include "tests/support/io/faulty_results.h"
#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

constexpr size_t kDirectBlock = kDirectAlignment;
constexpr size_t kFileBytes = 3 * kMiB + 1234;

class ReaderTest : public ::testing::TestWithParam<IoMode> {
 protected:
  void SetUp() override {
    path_ = ::testing::TempDir() + "moeflux_reader_test_" + std::string(io_mode_name(GetParam())) +
            "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(path_.begin() + static_cast<ptrdiff_t>(::testing::TempDir().size()), path_.end(),
                 '/', '_');
    std::string bytes(kFileBytes, '\0');
    std::mt19937_64 random(5);
    for (char& byte : bytes) byte = static_cast<char>(random());
    std::ofstream(path_, std::ios::binary) << bytes;
    auto opened = open_file(path_);
    ASSERT_TRUE(opened.ok()) << opened.error().to_string();
    file_ = std::move(opened).value();
    reader_ = make({});
    if (reader_ == nullptr) GTEST_SKIP() << "hardware: " << skip_reason_;
  }
  void TearDown() override {
    reader_.reset();
    std::remove(path_.c_str());
  }

  std::unique_ptr<AsyncReader> make(ReaderOptions options) {
    auto made = make_reader(GetParam(), options);
    if (made.ok()) return std::move(made).value();
    EXPECT_EQ(made.error().code(), ErrorCode::kUnsupported);
    skip_reason_ = made.error().to_string();
    return nullptr;
  }
  std::vector<std::byte> expected(uint64_t offset, size_t size) const {
    std::vector<std::byte> bytes(size);
    std::ifstream stream(path_, std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
    EXPECT_EQ(stream.gcount(), static_cast<std::streamsize>(size));
    return bytes;
  }
  /// Everything in flight: the status by tag, of which each must come once.
  static std::map<uint64_t, Status> drain(AsyncReader& reader) {
    std::map<uint64_t, Status> statuses;
    while (reader.in_flight() > 0) {
      for (ReadCompletion& completion : reader.wait()) {
        EXPECT_TRUE(statuses.emplace(completion.tag, std::move(completion.status)).second);
      }
    }
    return statuses;
  }
  Status read_one(AsyncReader& reader, uint64_t offset, std::span<std::byte> into) {
    const ReadRequest request{.file = file_.get(), .offset = offset, .into = into};
    reader.submit({&request, 1});
    return drain(reader).at(0);
  }

  std::string path_;
  std::string skip_reason_;
  std::unique_ptr<File> file_;
  std::unique_ptr<AsyncReader> reader_;
};

/// Modes that do nothing while nobody asks. Threads go on by themselves: PreadReader's tests hold
/// them still with a gate.
class ReaderWithoutThreads : public ReaderTest {};

/// A seeded crowd of reads of all kinds and what became of them.
struct Crowd {
  struct Read {
    uint64_t offset = 0;
    size_t size = 0;
    std::byte* into = nullptr;
  };
  std::vector<Read> reads;
  std::vector<ReadRequest> requests;
  BounceBuffer memory;

  Crowd(const File& file, uint64_t seed, size_t count) {
    std::mt19937_64 random(seed);
    size_t needed = 0;
    for (size_t i = 0; i < count; ++i) {
      Read read;
      read.size = random() % 4 == 0 ? random() % 8 * kDirectBlock : random() % (150 * 1000);
      read.size = std::min(read.size, kFileBytes);
      read.offset = random() % (kFileBytes - read.size + 1);
      if (random() % 3 == 0) read.offset = read.offset / kDirectBlock * kDirectBlock;
      if (random() % 8 == 0) read.offset = kFileBytes - read.size;
      reads.push_back(read);
      needed += read.size + 2 * kDirectBlock;
    }
    std::byte* base = memory.reserve(needed);
    std::fill_n(base, needed, std::byte{0x5C});
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      Read& read = reads[i];
      // Aligned, congruent with the offset, or anything.
      const size_t shift = i % 3 == 0   ? 0
                           : i % 3 == 1 ? read.offset % kDirectBlock
                                        : random() % kDirectBlock;
      read.into = base + at + shift;
      at = round_up(at + shift + read.size, kDirectBlock);
      requests.push_back(
          {.file = &file,
           .offset = read.offset,
           .into = {read.into, read.size},
           .tag = i,
           .priority = random() % 3 == 0 ? ReadPriority::kSpeculative : ReadPriority::kDemand});
    }
  }
};

TEST_P(ReaderTest, ReturnsTheBytesOfAnIfstreamForAnyOffsetSizeAndAddress) {
  for (const size_t chunk_bytes : {kDirectBlock, 64 * kKiB, 512 * kKiB}) {
    const auto reader = make({.threads = 3, .depth = 7, .chunk_bytes = chunk_bytes});
    Crowd crowd(*file_, chunk_bytes, 150);
    reader->submit(crowd.requests);
    EXPECT_EQ(reader->in_flight(), crowd.requests.size());
    for (const auto& [tag, status] : drain(*reader)) {
      ASSERT_TRUE(status.ok()) << status.error().to_string();
      const Crowd::Read& read = crowd.reads[tag];
      const auto bytes = expected(read.offset, read.size);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), read.into))
          << tag << ": " << read.size << " bytes at " << read.offset << ", chunks " << chunk_bytes;
    }
  }
}

TEST_P(ReaderTest, ReadsWhatItsSystemAnswersInPiecesAndWithInterruptions) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    FaultyResults faults({.seed = seed,
                          .short_probability = 0.3,
                          .eintr_probability = 0.2,
                          .eagain_probability = 0.2});
    const auto reader =
        make({.threads = 3, .depth = 5, .chunk_bytes = 32 * kKiB, .filter = &faults});
    Crowd crowd(*file_, seed, 60);
    reader->submit(crowd.requests);
    for (const auto& [tag, status] : drain(*reader)) {
      ASSERT_TRUE(status.ok()) << status.error().to_string();
      const auto bytes = expected(crowd.reads[tag].offset, crowd.reads[tag].size);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), crowd.reads[tag].into)) << tag;
    }
    EXPECT_GT(faults.falsified(), 0u);
  }
}

TEST_P(ReaderTest, AnEioFailsItsReadByNameAndSparesTheOthers) {
  FaultyResults faults({.seed = 3, .short_probability = 0.2, .eio_probability = 0.1});
  const auto reader = make({.threads = 3, .chunk_bytes = 32 * kKiB, .filter = &faults});
  Crowd crowd(*file_, 3, 100);
  reader->submit(crowd.requests);
  size_t failed = 0;
  for (const auto& [tag, status] : drain(*reader)) {
    const Crowd::Read& read = crowd.reads[tag];
    if (status.ok()) {
      const auto bytes = expected(read.offset, read.size);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), read.into)) << tag;
      continue;
    }
    ++failed;
    EXPECT_EQ(status.error().code(), ErrorCode::kIo);
    EXPECT_EQ(status.error().message().find(path_ + ": reading "), 0u) << status.error().message();
    EXPECT_NE(status.error().message().find("Input/output error"), std::string::npos);
  }
  EXPECT_GT(failed, 0u);
  EXPECT_LT(failed, 100u);
}

TEST_P(ReaderTest, ReadsPastTheEndFailWithTheSizesAndThoseUpToItDoNot) {
  std::vector<std::byte> into(3 * kDirectBlock);
  EXPECT_TRUE(read_one(*reader_, kFileBytes - into.size(), into).ok());
  EXPECT_TRUE(read_one(*reader_, kFileBytes, {}).ok());
  for (const uint64_t offset :
       {kFileBytes - into.size() + 1, kFileBytes, kFileBytes + 10 * kMiB, size_t{INT64_MAX}}) {
    const Status status = read_one(*reader_, offset, into);
    ASSERT_FALSE(status.ok()) << offset;
    EXPECT_EQ(status.error().code(), ErrorCode::kIo);
    EXPECT_NE(status.error().message().find(std::to_string(kFileBytes)), std::string::npos);
    EXPECT_NE(status.error().message().find(path_), std::string::npos);
  }
}

TEST_P(ReaderTest, AFileCutShortMeanwhileIsAnErrorNotACrash) {
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << std::string(10000, 'x');
  std::vector<std::byte> into(2 * kDirectBlock);
  EXPECT_TRUE(read_one(*reader_, 100, into).ok());
  EXPECT_FALSE(read_one(*reader_, 2 * kDirectBlock, into).ok());
  EXPECT_FALSE(read_one(*reader_, kMiB, into).ok());
}

TEST_P(ReaderTest, FilesThatAreNoneOfTheSystemsAreReadToo) {
  std::string text(100 * kKiB, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 13 + i / 256);
  const MemoryFile memory("memory", text);
  const FaultyFile bad(std::make_unique<MemoryFile>("bad", text), {{50, 51}});
  const auto reader = make({.threads = 2, .depth = 2, .chunk_bytes = 2 * kDirectBlock});
  std::vector<std::byte> good_bytes(text.size());
  std::vector<std::byte> bad_bytes(text.size());
  const ReadRequest requests[] = {{&memory, 0, good_bytes, 0}, {&bad, 0, bad_bytes, 1}};
  reader->submit(requests);
  const auto statuses = drain(*reader);
  EXPECT_TRUE(statuses.at(0).ok());
  EXPECT_FALSE(statuses.at(1).ok());
  EXPECT_TRUE(std::ranges::equal(good_bytes, std::as_bytes(std::span(text))));
}

TEST_P(ReaderTest, PollNeverStallsAndBringsEverythingInTheEnd) {
  const auto reader = make({.threads = 2, .depth = 2, .chunk_bytes = 8 * kDirectBlock});
  EXPECT_TRUE(reader->poll().empty());
  Crowd crowd(*file_, 8, 40);
  reader->submit(crowd.requests);
  size_t arrived = 0;
  while (reader->in_flight() > 0) {
    for (const ReadCompletion& completion : reader->poll()) {
      ASSERT_TRUE(completion.status.ok());
      ++arrived;
    }
  }
  EXPECT_EQ(arrived, 40u);
  EXPECT_TRUE(reader->poll().empty());
}

TEST_P(ReaderTest, SomeCancelledSomePromotedEachCompletesOnceWithItsBytes) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const auto reader = make({.threads = 2, .depth = 3, .chunk_bytes = 16 * kDirectBlock});
    Crowd crowd(*file_, seed, 60);
    std::mt19937_64 random(seed);
    std::map<uint64_t, Status> statuses;
    size_t cancelled = 0;
    size_t submitted = 0;
    while (submitted < crowd.requests.size() || reader->in_flight() > 0) {
      const size_t count = std::min<size_t>(random() % 9, crowd.requests.size() - submitted);
      reader->submit(std::span(crowd.requests).subspan(submitted, count));
      submitted += count;
      cancelled += reader->cancel(random() % (submitted + 1));
      reader->promote(random() % (submitted + 1));
      if (reader->in_flight() == 0) continue;
      auto completions = random() % 2 == 0 ? reader->poll() : reader->wait();
      for (ReadCompletion& completion : completions) {
        ASSERT_TRUE(statuses.emplace(completion.tag, std::move(completion.status)).second);
      }
    }
    ASSERT_EQ(statuses.size(), crowd.requests.size());
    size_t failed = 0;
    for (const auto& [tag, status] : statuses) {
      if (!status.ok()) {
        ASSERT_EQ(status.error().code(), ErrorCode::kCancelled);
        ++failed;
        continue;
      }
      const auto bytes = expected(crowd.reads[tag].offset, crowd.reads[tag].size);
      ASSERT_TRUE(std::equal(bytes.begin(), bytes.end(), crowd.reads[tag].into)) << tag;
    }
    EXPECT_EQ(failed, cancelled);
  }
}

TEST_P(ReaderWithoutThreads, AQueuedReadCanBeCancelledBehindTheDepth) {
  // One command in flight, so that most of the second read waits.
  const auto reader = make({.threads = 1, .depth = 1, .chunk_bytes = kDirectBlock});
  std::vector<std::byte> into(2 * kMiB);
  std::vector<std::byte> never(100);
  const ReadRequest requests[] = {{file_.get(), 0, into, 1}, {file_.get(), 0, never, 2}};
  reader->submit(requests);
  ASSERT_EQ(reader->cancel(2), 1u);
  const auto statuses = drain(*reader);
  EXPECT_TRUE(statuses.at(1).ok());
  ASSERT_FALSE(statuses.at(2).ok());
  EXPECT_EQ(statuses.at(2).error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(std::count(never.begin(), never.end(), std::byte{0}), 100);
}

TEST_P(ReaderTest, NothingIsWrittenAfterTheDestructor) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    auto reader = make({.threads = 2, .depth = 8, .chunk_bytes = 16 * kDirectBlock});
    Crowd crowd(*file_, seed, 40);
    reader->submit(crowd.requests);
    if (seed % 2 == 0) (void)reader->wait();
    reader.reset();
    for (const Crowd::Read& read : crowd.reads) {
      std::fill_n(read.into, read.size, std::byte{0x77});
    }
    for (const Crowd::Read& read : crowd.reads) {
      ASSERT_EQ(std::count(read.into, read.into + read.size, std::byte{0x77}),
                static_cast<ptrdiff_t>(read.size));
    }
  }
}

TEST_P(ReaderTest, RegisteredMemoryGetsTheSameBytes) {
  BounceBuffer memory;
  constexpr size_t kBytes = 512 * kKiB;
  const std::span<std::byte> region(memory.reserve(kBytes), kBytes);
  const std::span<std::byte> regions[] = {region.first(kBytes / 2), region.subspan(kBytes / 2)};
  const Status status = reader_->register_buffers(regions);
  EXPECT_TRUE(status.ok() || status.error().code() == ErrorCode::kResourceExhausted);
  for (const uint64_t offset : {uint64_t{0}, uint64_t{8 * kDirectBlock}, uint64_t{123}}) {
    std::fill(region.begin(), region.end(), std::byte{0});
    ASSERT_TRUE(read_one(*reader_, offset, region.first(kBytes / 4)).ok());
    ASSERT_TRUE(read_one(*reader_, offset, region.last(kBytes / 4)).ok());
    ASSERT_TRUE(read_one(*reader_, offset, region.subspan(kBytes / 4, kBytes / 2)).ok());
    for (const auto& part : {region.first(kBytes / 4), region.last(kBytes / 4)}) {
      EXPECT_TRUE(std::ranges::equal(part, expected(offset, kBytes / 4)));
    }
    EXPECT_TRUE(
        std::ranges::equal(region.subspan(kBytes / 4, kBytes / 2), expected(offset, kBytes / 2)));
  }
  EXPECT_TRUE(reader_->register_buffers({}).ok());
  ASSERT_TRUE(read_one(*reader_, 0, region).ok());
  EXPECT_TRUE(std::ranges::equal(region, expected(0, kBytes)));
}

std::string mode_name(const ::testing::TestParamInfo<IoMode>& mode) {
  return std::string(io_mode_name(mode.param));
}

INSTANTIATE_TEST_SUITE_P(Modes, ReaderTest,
                         ::testing::Values(IoMode::kAuto, IoMode::kUring, IoMode::kDirect,
                                           IoMode::kPread),
                         mode_name);
INSTANTIATE_TEST_SUITE_P(Modes, ReaderWithoutThreads, ::testing::Values(IoMode::kUring), mode_name);

TEST(IoMode, NamesParseToThemselvesAndOthersAreRefusedWithTheList) {
  for (const std::string_view name : {"auto", "uring", "direct", "pread"}) {
    const auto mode = parse_io_mode(name);
    ASSERT_TRUE(mode.ok());
    EXPECT_EQ(io_mode_name(*mode), name);
  }
  const auto unknown = parse_io_mode("aio");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message().find("uring"), std::string::npos);
}

TEST(MakeReader, AutoIsUringWhereThereIsOneAndElseDirect) {
  const auto reader = make_reader(IoMode::kAuto, {});
  ASSERT_TRUE(reader.ok());
  const auto uring = make_reader(IoMode::kUring, {});
  EXPECT_EQ((*reader)->name(), uring.ok() ? "uring" : "direct");
}

TEST(MakeReader, RefusesOptionsOutOfRange) {
  for (const ReaderOptions& options :
       {ReaderOptions{.threads = 0}, ReaderOptions{.depth = 0}, ReaderOptions{.chunk_bytes = 0},
        ReaderOptions{.chunk_bytes = 5000}}) {
    const auto reader = make_reader(IoMode::kDirect, options);
    ASSERT_FALSE(reader.ok());
    EXPECT_EQ(reader.error().code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace moeflux
