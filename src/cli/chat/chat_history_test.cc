#include "cli/chat/chat_history.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <utility>

#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::TempFolder;
using testing::write_bytes;
using Entries = std::vector<std::string>;

TEST(ChatHistory, OutlivesItsProgramWithSeveralLinesAnEntry) {
  const TempFolder folder;
  const std::string path = folder / "a/b/chat_history";
  const Entries entries = {"one", "two\nlines \\n here\\", "\xc3\xbc \xe6\x97\xa5", "\\\n\\"};
  for (const std::string& entry : entries) ChatHistory(path).add(entry);
  EXPECT_EQ(ChatHistory(path).load(), entries);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms(0600));
  EXPECT_EQ(std::filesystem::status(folder / "a").permissions(), perms(0700));
  EXPECT_EQ(std::filesystem::status(folder / "a/b").permissions(), perms(0700));
}

TEST(ChatHistory, IsBounded) {
  const TempFolder folder;
  const ChatHistory history(folder / "log");
  history.add(std::string((64 << 10) + 1, 'x'));
  history.add("");
  EXPECT_EQ(history.load(), Entries{});
  for (int i = 0; i < 1200; ++i) history.add(std::to_string(i));
  EXPECT_EQ(history.load().size(), 1000u);
  EXPECT_EQ(history.load().back(), "1199");
}

TEST(ChatHistory, ThatCannotBeKeptIsNoFailure) {
  const TempFolder folder;
  write_bytes(folder / "file", "x");
  const ChatHistory inside_a_file(folder / "file/chat_history");
  inside_a_file.add("one");
  EXPECT_EQ(inside_a_file.load(), Entries{});
  const ChatHistory is_a_folder(folder.path());
  is_a_folder.add("one");
  EXPECT_EQ(is_a_folder.load(), Entries{});
  const ChatHistory nowhere(std::nullopt);
  nowhere.add("one");
  EXPECT_EQ(nowhere.load(), Entries{});
}

/// Puts the environment back.
class Environment {
 public:
  Environment() {
    for (const char* name : {"HOME", "XDG_STATE_HOME"}) {
      const char* const value = ::getenv(name);
      before_.emplace_back(name,
                           value == nullptr ? std::nullopt : std::optional<std::string>(value));
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      if (value) ::setenv(name, value->c_str(), 1);
      if (!value) ::unsetenv(name);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST(ChatHistory, LiesInTheStateFolder) {
  const Environment environment;
  ::setenv("HOME", "/somewhere", 1);
  ::setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(chat_history_path(), "/state/moeflux/chat_history");
  ::setenv("XDG_STATE_HOME", "not/absolute", 1);
  EXPECT_EQ(chat_history_path(), "/somewhere/.local/state/moeflux/chat_history");
  ::unsetenv("XDG_STATE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(chat_history_path(), std::nullopt);
}

}  // namespace
}  // namespace moeflux
