#include "cli/terminal.h"

#include <gtest/gtest.h>

#include <string_view>

namespace moeflux {
namespace {

TEST(Terminal, AProgressLineIsNeverWiderThanTheTerminal) {
  const std::string_view counts = "  1.00 GiB of 2.00 GiB";
  for (size_t columns = 1; columns < 120; ++columns) {
    EXPECT_LE(progress_line("loading", 50, counts, columns).size(), columns) << columns;
  }
  EXPECT_EQ(progress_line("loading", 50, counts, 100),
            "loading [================                ]  50 %  1.00 GiB of 2.00 GiB");
  EXPECT_EQ(progress_line("loading", 7, counts, 14), "loading   7 %");
}

TEST(Log, ShowsWhatItsLevelAllows) {
  Log log;
  EXPECT_TRUE(log.shows(LogLevel::kInfo));
  EXPECT_FALSE(log.shows(LogLevel::kDebug));
  log.set_level(LogLevel::kError);
  EXPECT_FALSE(log.shows(LogLevel::kWarning));
}

}  // namespace
}  // namespace moeflux
