#include "backend/gpu/launch/read_out.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/gpu/emulator/emulator.h"

namespace moeflux::gpu {
namespace {

class ReadOutTest : public ::testing::Test {
 protected:
  std::unique_ptr<Buffer> allocate(size_t bytes) {
    return platform_->allocate(bytes, MemoryKind::kHostVisible).value();
  }

  std::unique_ptr<Platform> platform_ = make_emulator_platform({.seed = 1});
  std::unique_ptr<Executor> executor_ = platform_->create_executor().value();
  std::unique_ptr<Buffer> from_ = allocate(ReadOut::kBytesMax + 64);
  ReadOut read_out_{allocate(ReadOut::kWordsBytes)};
};

TEST_F(ReadOutTest, BringsAnyNumberOfBytesFromAnywhere) {
  for (size_t i = 0; i < from_->size_bytes(); ++i) {
    from_->host_data()[i] = static_cast<std::byte>(i * 37 + i / 256);
  }
  for (const size_t bytes : {1, 2, 3, 4, 5, 8, 255, 1023, 1025, 4093, 4096}) {
    for (const size_t offset : {0, 1, 2, 3, 17, 64}) {
      executor_->record(read_out_.plan(*from_, offset, bytes));
      EXPECT_FALSE(read_out_.has_arrived()) << bytes << " bytes: before anything was launched";
      ASSERT_TRUE(executor_->wait(executor_->submit()).ok());
      ASSERT_TRUE(read_out_.has_arrived());
      std::vector<std::byte> got(bytes);
      read_out_.take(got);
      EXPECT_EQ(std::memcmp(got.data(), from_->host_data() + offset, bytes), 0)
          << bytes << " bytes from " << offset;
    }
  }
}

TEST_F(ReadOutTest, HasNotArrivedBeforeItsLastWord) {
  auto words = allocate(ReadOut::kWordsBytes);
  const std::span<uint64_t> stored(reinterpret_cast<uint64_t*>(words->host_data()),
                                   ReadOut::kWordsBytes / sizeof(uint64_t));
  ReadOut read_out(std::move(words));
  (void)read_out.plan(*from_, 0, 12);
  for (const size_t word : {2, 0, 1}) {
    EXPECT_FALSE(read_out.has_arrived());
    stored[word] = uint64_t{kReadOutMark} << 32 | (word + 5);
  }
  EXPECT_TRUE(read_out.has_arrived());
  std::vector<uint32_t> got(3);
  read_out.take(std::as_writable_bytes(std::span(got)));
  EXPECT_EQ(got, (std::vector<uint32_t>{5, 6, 7}));
  (void)read_out.plan(*from_, 0, 4);
  EXPECT_FALSE(read_out.has_arrived()) << "the words of the read before count no more";
}

}  // namespace
}  // namespace moeflux::gpu
