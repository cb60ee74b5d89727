#include "io/aligned_read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "tests/support/io/memory_file.h"

namespace moeflux {
namespace {

constexpr size_t kBlock = kDirectAlignment;
constexpr std::byte kUntouched{0x5C};
constexpr size_t kUnlimited = size_t{1} << 40;

/// A drive of blocks that serves at most `most` bytes a call and refuses what is not aligned.
class BlockDrive {
 public:
  explicit BlockDrive(size_t bytes) : content_(bytes) {
    std::mt19937_64 random(7);
    for (std::byte& byte : content_) byte = static_cast<std::byte>(random());
  }
  const std::vector<std::byte>& content() const { return content_; }

  int64_t read(const AlignedRead& read, size_t most) const {
    if (read.offset() % kBlock != 0) return -EINVAL;
    size_t at = static_cast<size_t>(read.offset());
    const size_t end = std::min(content_.size(), at + most);
    int64_t count = 0;
    for (const iovec& piece : read.pieces()) {
      if (reinterpret_cast<uintptr_t>(piece.iov_base) % kBlock != 0) return -EINVAL;
      if (piece.iov_len % kBlock != 0 || piece.iov_len == 0) return -EINVAL;
      const size_t size = at >= end ? 0 : std::min(piece.iov_len, end - at);
      if (size > 0) std::memcpy(piece.iov_base, content_.data() + at, size);
      at += size;
      count += static_cast<int64_t>(size);
    }
    return count;
  }

 private:
  std::vector<std::byte> content_;
};

class AlignedReadTest : public ::testing::Test {
 protected:
  ReadChunk chunk(uint64_t offset, size_t size, size_t address) {
    std::byte* base = arena_.reserve(kArena);
    std::fill_n(base, kArena, kUntouched);
    return {.file = &file_, .offset = offset, .into = {base + kBlock + address, size}};
  }
  /// Everything around the destination is as it was.
  bool only_touched(const ReadChunk& chunk) {
    const std::byte* base = arena_.reserve(kArena);
    const auto untouched = [](std::byte byte) { return byte == kUntouched; };
    const std::byte* begin = chunk.into.data();
    return std::all_of(base, begin, untouched) &&
           std::all_of(begin + chunk.into.size(), base + kArena, untouched);
  }
  static size_t bytes_asked(const AlignedRead& read) {
    size_t bytes = 0;
    for (const iovec& piece : read.pieces()) bytes += piece.iov_len;
    return bytes;
  }

  static constexpr size_t kArena = 16 * kBlock;
  MemoryFile file_{"disk", ""};
  BounceBuffer arena_;
  BounceBuffer bounce_;
};

TEST_F(AlignedReadTest, AlignedRequestsGoStraightToTheirDestination) {
  const ReadChunk direct = chunk(3 * kBlock, 2 * kBlock, 0);
  const AlignedRead read(direct, kBlock, bounce_);
  ASSERT_EQ(read.pieces().size(), 1u);
  EXPECT_EQ(read.pieces()[0].iov_base, direct.into.data());
  EXPECT_EQ(read.pieces()[0].iov_len, 2 * kBlock);
  EXPECT_EQ(read.offset(), 3 * kBlock);
}

TEST_F(AlignedReadTest, CongruentRequestsBounceTheirEdgesOnly) {
  const ReadChunk chunk_at = chunk(kBlock + 100, 3 * kBlock, 100);
  const AlignedRead read(chunk_at, kBlock, bounce_);
  ASSERT_EQ(read.pieces().size(), 3u);
  EXPECT_EQ(read.pieces()[1].iov_base, chunk_at.into.data() + kBlock - 100);
  EXPECT_EQ(read.pieces()[1].iov_len, 2 * kBlock);
  EXPECT_EQ(bytes_asked(read), 4 * kBlock);
}

TEST_F(AlignedReadTest, AnyOffsetSizeAndAddressYieldsExactlyItsBytes) {
  const BlockDrive drive(40 * kBlock + 1234);  // its end is not aligned
  std::mt19937_64 random(11);
  const size_t edges[] = {0, 1, 100, kBlock - 1};
  for (int round = 0; round < 3000; ++round) {
    size_t size = 1 + random() % (6 * kBlock);
    uint64_t offset = random() % 30 * kBlock + edges[random() % 4];
    if (round % 5 == 0) offset = drive.content().size() - size;  // up to the very end
    if (round % 3 == 0) size = std::max<size_t>(1, size / kBlock * kBlock);
    offset = std::min<uint64_t>(offset, drive.content().size() - size);
    const size_t address = round % 2 == 0 ? offset % kBlock : random() % kBlock;
    const ReadChunk wanted = chunk(offset, size, address);
    AlignedRead read(wanted, kBlock, bounce_);
    const bool is_short = round % 4 == 1;
    while (true) {
      const size_t most = is_short ? kBlock + random() % (3 * kBlock) : kUnlimited;
      const int64_t result = drive.read(read, most);
      ASSERT_GE(result, 0) << offset << " " << size << " " << address;
      const auto step = read.take(result);
      ASSERT_TRUE(step.ok());
      ASSERT_NE(*step, AlignedRead::Step::kPlain) << offset << " " << size << " " << address;
      if (*step == AlignedRead::Step::kDone) break;
    }
    ASSERT_EQ(std::memcmp(wanted.into.data(), drive.content().data() + offset, size), 0)
        << offset << " " << size << " " << address;
    ASSERT_TRUE(only_touched(wanted)) << offset << " " << size << " " << address;
  }
}

TEST_F(AlignedReadTest, InterruptionsAreAskedAgainButNotForever) {
  const ReadChunk wanted = chunk(0, kBlock, 0);
  AlignedRead read(wanted, kBlock, bounce_);
  for (int i = 0; i < 1000; ++i) {
    const auto step = read.take(i % 2 == 0 ? -EINTR : -EAGAIN);
    ASSERT_TRUE(step.ok());
    ASSERT_EQ(*step, AlignedRead::Step::kAgain);
    ASSERT_EQ(bytes_asked(read), kBlock);
  }
  bool ended = false;
  for (int i = 0; i < 100000 && !ended; ++i) ended = !read.take(-EAGAIN).ok();
  EXPECT_TRUE(ended);
}

TEST_F(AlignedReadTest, AnErrorNamesFileOffsetFoundAndExpected) {
  const ReadChunk wanted = chunk(kBlock + 10, 3 * kBlock, 0);
  AlignedRead read(wanted, kBlock, bounce_);
  ASSERT_TRUE(read.take(static_cast<int64_t>(2 * kBlock)).ok());
  const auto failed = read.take(-EIO);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code(), ErrorCode::kIo);
  EXPECT_EQ(failed.error().message(),
            "disk: reading 12288 bytes at offset 4106 failed after 8182 bytes: Input/output error");
}

TEST_F(AlignedReadTest, WhatIsCutRefusedOrGivenUpIsLeftToAPlainRead) {
  const ReadChunk wanted = chunk(0, 3 * kBlock, 0);
  for (const int64_t result : {int64_t{0}, int64_t{100}, int64_t{-EINVAL}, int64_t{-ECANCELED}}) {
    AlignedRead read(wanted, kBlock, bounce_);
    const auto step = read.take(result);
    ASSERT_TRUE(step.ok());
    EXPECT_EQ(*step, AlignedRead::Step::kPlain) << result;
  }
}

}  // namespace
}  // namespace moeflux
