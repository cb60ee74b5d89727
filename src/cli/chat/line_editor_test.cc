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
  bool was_pasted() const override { return pasted; }
  void remember(const std::string& text) override { remembered.push_back(text); }

  std::vector<std::string> remembered;
  bool pasted = false;

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

TEST(ReadEntry, APastedTextIsWholeWhateverItsEnds) {
  Lines lines({"\"\"\"Of a module.\n\"\"\"\nimport os", "cc \\\n  a.c \\", "after"});
  lines.pasted = true;
  EXPECT_EQ(read_entry(lines), "\"\"\"Of a module.\n\"\"\"\nimport os");
  EXPECT_EQ(read_entry(lines), "cc \\\n  a.c \\");
  EXPECT_EQ(lines.remembered.size(), 2u);
}

}  // namespace
}  // namespace moeflux
