#include "serve/answer/least_indent.h"

#include <gtest/gtest.h>

namespace moeflux::serve {
namespace {

std::string cut(int64_t columns, const std::string& text, size_t piece) {
  LeastIndent indent(columns);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece) out += indent.push(text.substr(at, piece));
  return out;
}

TEST(LeastIndent, EndsBeforeALineOfLess) {
  const std::string block = "return 1\n    if x:\n\t\t\t\ty\n  ";
  for (size_t piece = 1; piece < block.size() + 4; ++piece) {
    EXPECT_EQ(cut(4, block + "z\n    more", piece), block) << piece;
    EXPECT_EQ(cut(2, block + "z\n    more", piece), block + "z\n    more") << piece;
    EXPECT_EQ(cut(4, "a\n\n    b", piece), "a\n") << piece;
    EXPECT_EQ(cut(0, "a\nb", piece), "a\nb") << piece;
  }
}

}  // namespace
}  // namespace moeflux::serve
