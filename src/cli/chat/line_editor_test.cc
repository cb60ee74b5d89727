#include "cli/chat/line_editor.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace moeflux {
namespace {

class Lines : public LineEditor {
 public:
  explicit Lines(std::deque<std::string> lines) : lines_(std::move(lines)) {}
  std::optional<std::string> read(const std::string&) override {
    if (lines_.empty()) return std::nullopt;
    std::string line = lines_.front();
    lines_.pop_front();
    return line;
  }
  void remember(const std::string& text) override { remembered.push_back(text); }

  std::vector<std::string> remembered;

 private:
  std::deque<std::string> lines_;
};

TEST(ReadEntry, ALineIsAnEntry) {
  Lines lines({"one", "", "two"});
  EXPECT_EQ(read_entry(lines), "one");
  EXPECT_EQ(read_entry(lines), "");
  EXPECT_EQ(read_entry(lines), "two");
  EXPECT_EQ(read_entry(lines), std::nullopt);
  EXPECT_EQ(lines.remembered, (std::vector<std::string>{"one", "two"}));
}

TEST(ReadEntry, ABackslashGoesOn) {
  Lines lines({"one\\", "two\\", "three", "four\\"});
  EXPECT_EQ(read_entry(lines), "one\ntwo\nthree");
  EXPECT_EQ(read_entry(lines), "four\n");
}

TEST(ReadEntry, QuotesHoldLinesTogether) {
  Lines lines({"\"\"\"one", "", "two\\", "three\"\"\"", "\"\"\"four\"\"\"", "\"\"\"five"});
  EXPECT_EQ(read_entry(lines), "one\n\ntwo\\\nthree");
  EXPECT_EQ(read_entry(lines), "four");
  EXPECT_EQ(read_entry(lines), "five\n");
}

}  // namespace
}  // namespace moeflux
