#include "io/line_log.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;
using Lines = std::vector<std::string>;

TEST(LineLog, GivesTheLastLinesInOrder) {
  const TempFolder folder;
  const std::string path = folder / "log";
  EXPECT_EQ(*read_lines(path, {}), Lines{});
  for (const char* line : {"one", "", "three", "four"}) {
    ASSERT_TRUE(append_line(path, line, {}).ok());
  }
  EXPECT_EQ(*read_lines(path, {}), (Lines{"one", "", "three", "four"}));
  EXPECT_EQ(*read_lines(path, {.lines_max = 2}), (Lines{"three", "four"}));
}

TEST(LineLog, IsItsUsersAlone) {
  const TempFolder folder;
  const std::string path = folder / "log";
  write_bytes(path, "old\n");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_TRUE(append_line(path, "new", {}).ok());
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms(0600));
  ASSERT_TRUE(append_line(folder / "fresh", "new", {}).ok());
  EXPECT_EQ(std::filesystem::status(folder / "fresh").permissions(), perms(0600));
}

TEST(LineLog, StaysWithinItsBytesAndKeepsTheNewestWhole) {
  const TempFolder folder;
  const std::string path = folder / "log";
  const LineLogLimits limits{.lines_max = 1000, .bytes_max = 1000};
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(append_line(path, "line " + std::to_string(i), limits).ok());
    ASSERT_LE(std::filesystem::file_size(path), 1000u + 10u);
  }
  const Lines lines = *read_lines(path, limits);
  ASSERT_GE(lines.size(), 50u);
  EXPECT_EQ(lines.back(), "line 499");
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i], "line " + std::to_string(500 - lines.size() + i));
  }
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms(0600));
  expect_error(append_line(path, std::string(251, 'x'), limits), ErrorCode::kResourceExhausted,
               {"251"});
}

TEST(LineLog, HalfALineOfAKilledProcessIsNone) {
  const TempFolder folder;
  const std::string path = folder / "log";
  write_bytes(path, "one\ntw");
  EXPECT_EQ(*read_lines(path, {}), Lines{"one"});
  ASSERT_TRUE(append_line(path, "three", {}).ok());
  EXPECT_EQ(*read_lines(path, {}), (Lines{"one", "tw", "three"}));
}

TEST(LineLog, IsNoPipeNorFolder) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(append_line(folder / "pipe", "x", {}), ErrorCode::kInvalidArgument, {"pipe"});
  EXPECT_FALSE(read_lines(folder / "pipe", {}).ok());
  EXPECT_FALSE(append_line(folder.path(), "x", {}).ok());
  EXPECT_FALSE(read_lines(folder.path(), {}).ok());
  expect_error(append_line(folder / "none/log", "x", {}), ErrorCode::kNotFound, {"none/log"});
}

TEST(LineLog, DoesNotWaitForWhoKeepsItLocked) {
  const TempFolder folder;
  const std::string path = folder / "log";
  write_bytes(path, "one\n");
  std::FILE* const file = std::fopen(path.c_str(), "r");
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(::flock(::fileno(file), LOCK_EX), 0);
  expect_error(append_line(path, "two", {}), ErrorCode::kFailedPrecondition, {"locked"});
  EXPECT_EQ(*read_lines(path, {}), Lines{"one"});
  std::fclose(file);
}

// Processes add and cut at once: no line is torn, and none of the last ones is lost.
TEST(LineLog, ProcessesDoNotTearEachOthersLines) {
  const TempFolder folder;
  const std::string path = folder / "log";
  const LineLogLimits limits{.lines_max = 100000, .bytes_max = 4000};
  constexpr int kWriters = 4;
  constexpr int kLinesEach = 200;
  for (int writer = 0; writer < kWriters; ++writer) {
    if (::fork() != 0) continue;
    for (int i = 0; i < kLinesEach; ++i) {
      const std::string line = "writer " + std::to_string(writer) + " line " + std::to_string(i);
      bool is_added = false;
      for (int attempt = 0; attempt < 1000 && !is_added; ++attempt) {
        is_added = append_line(path, line, limits).ok();
      }
      if (!is_added) ::_exit(1);
    }
    ::_exit(0);
  }
  for (int writer = 0; writer < kWriters; ++writer) {
    int status = 0;
    ASSERT_GT(::wait(&status), 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_LE(std::filesystem::file_size(path), 4100u);
  std::map<int, int> last;
  const Lines lines = *read_lines(path, limits);
  for (const std::string& line : lines) {
    int writer = -1;
    int number = -1;
    ASSERT_EQ(std::sscanf(line.c_str(), "writer %d line %d", &writer, &number), 2) << line;
    EXPECT_EQ(line, "writer " + std::to_string(writer) + " line " + std::to_string(number));
    if (last.contains(writer)) {
      EXPECT_EQ(number, last[writer] + 1) << line;
    }
    last[writer] = number;
  }
  for (const auto& [writer, number] : last) EXPECT_EQ(number, kLinesEach - 1) << writer;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().filename(), "log");
  }
}

}  // namespace
}  // namespace moeflux
