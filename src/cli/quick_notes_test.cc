#include "cli/quick_notes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

namespace moeflux {
namespace {

class QuickNotesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(ends_.data()), 0); }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }
  std::string read_all() const {
    EXPECT_EQ(fcntl(ends_[0], F_SETFL, O_NONBLOCK), 0);
    std::string text;
    std::array<char, 4096> bytes;
    for (ssize_t n = 0; (n = read(ends_[0], bytes.data(), bytes.size())) > 0;) {
      text.append(bytes.data(), static_cast<size_t>(n));
    }
    return text;
  }

  std::array<int, 2> ends_ = {-1, -1};
};

TEST_F(QuickNotesTest, ALineIsWrittenWhole) {
  QuickNotes notes(ends_[1]);
  notes.add("one");
  notes.add("t\nw\x1bo");
  EXPECT_EQ(read_all(), "one\nt?w?o\n");
  notes.add(std::string(10'000, 'x'));
  const std::string cut = read_all();
  EXPECT_LE(cut.size(), 4096u);
  EXPECT_EQ(cut.back(), '\n');
}

TEST_F(QuickNotesTest, NobodyWaitsForAReaderThatIsSlow) {
  QuickNotes notes(ends_[1]);
  const std::string line(1000, 'x');
  for (int i = 0; i < 1000; ++i) notes.add(line);  // more than a pipe holds
  const std::string text = read_all();
  const size_t written = text.size() / (line.size() + 1);
  EXPECT_LT(written, 1000u);
  notes.add("more");
  EXPECT_EQ(read_all(), "(" + std::to_string(1000 - written) +
                            " lines were left out: nobody read them)\nmore\n");
  notes.add("again");
  EXPECT_EQ(read_all(), "again\n");
}

}  // namespace
}  // namespace moeflux
