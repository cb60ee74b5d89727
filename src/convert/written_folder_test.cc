#include "convert/written_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::read_bytes;
using testing::TempFolder;
using testing::write_bytes;

class WrittenFolderTest : public ::testing::Test {
 protected:
  WrittenFolderTest() { std::filesystem::create_directory(model()); }

  std::string model() const { return parent_ / "model"; }
  std::string beside() const { return parent_ / "model.moeflux-new"; }
  FolderWriting writing(const std::string& version) const {
    return {.directory = model(),
            .files = {"config.json", "experts/0", version},
            .replace = true,
            .progress = [version](const std::string& folder) -> Result<WritingProgress> {
              if (path_exists(folder + "/whole-" + version)) return WritingProgress::kWhole;
              return path_exists(folder + "/" + version) ? WritingProgress::kBegun
                                                         : WritingProgress::kNone;
            }};
  }
  static void fill(const WrittenFolder& folder, const std::string& version) {
    std::filesystem::create_directory(folder.path() + "/experts");
    write_bytes(folder.path() + "/" + version, "");
    write_bytes(folder.path() + "/config.json", version);
    write_bytes(folder.path() + "/experts/0", version);
  }
  void write_model(const std::string& version) const {
    const auto folder = WrittenFolder::open(writing(version));
    ASSERT_TRUE(folder.ok()) << folder.error().to_string();
    ASSERT_TRUE((*folder)->begin().ok());
    fill(**folder, version);
    const Status finished = (*folder)->finish();
    EXPECT_TRUE(finished.ok()) << finished.error().to_string();
  }
  void expect_model(const std::string& version) const {
    EXPECT_EQ(read_bytes(model() + "/config.json"), version);
    EXPECT_EQ(read_bytes(model() + "/experts/0"), version);
  }

  TempFolder parent_;
};

TEST_F(WrittenFolderTest, TheOldModelStaysUntilTheNewOneIsWhole) {
  write_model("a");
  {
    const auto folder = WrittenFolder::open(writing("b"));
    ASSERT_TRUE(folder.ok()) << folder.error().to_string();
    ASSERT_TRUE((*folder)->begin().ok());
    fill(**folder, "b");
    expect_model("a");
    ASSERT_TRUE((*folder)->finish().ok());
  }
  expect_model("b");
  EXPECT_FALSE(path_exists(model() + "/a"));
  EXPECT_FALSE(path_exists(beside()));
}

TEST_F(WrittenFolderTest, WhatIsNotOursStays) {
  write_model("a");
  std::filesystem::create_directory(model() + "/own");
  for (const char* name :
       {"model-9.safetensors", "own/x", "experts/own", "own/config.json.tmp-1"}) {
    write_bytes(model() + "/" + name, "mine");
  }
  write_model("b");
  for (const char* name :
       {"model-9.safetensors", "own/x", "experts/own", "own/config.json.tmp-1"}) {
    EXPECT_EQ(read_bytes(model() + "/" + name), "mine") << name;
  }
  expect_model("b");
}

TEST_F(WrittenFolderTest, FilesThatNobodyListedAreNotReplaced) {
  std::filesystem::create_directory(model() + "/experts");
  write_bytes(model() + "/config.json", "mine");
  write_bytes(model() + "/experts/0", "mine");
  expect_error(WrittenFolder::open(writing("b")), ErrorCode::kInvalidArgument,
               {model(), "config.json and 1 more", "moeflux_files.json"});
  // Beside what is listed too.
  const std::string list = model() + "/moeflux_files.json";
  write_bytes(list, R"({"format": "moeflux files", "files": ["config.json"]})");
  expect_error(WrittenFolder::open(writing("b")), ErrorCode::kInvalidArgument,
               {model(), ": experts/0 would"});
  write_bytes(list, R"({"format": "moeflux files", "files": ["../b"]})");
  expect_error(WrittenFolder::open(writing("b")), ErrorCode::kInvalidArgument, {"climbs out"});
  write_bytes(list, R"({"files": ["config.json"]})");
  expect_error(WrittenFolder::open(writing("b")), ErrorCode::kCorruption, {list});
  EXPECT_EQ(read_bytes(model() + "/config.json"), "mine");
  EXPECT_EQ(read_bytes(model() + "/experts/0"), "mine");
  EXPECT_FALSE(path_exists(beside()));
}

TEST_F(WrittenFolderTest, OnlyListedTemporaryFilesGo) {
  write_bytes(model() + "/moeflux_files.json.tmp-12-0", "half a list");
  {
    const auto folder = WrittenFolder::open(writing("a"));  // so the folder is empty
    ASSERT_TRUE(folder.ok()) << folder.error().to_string();
    EXPECT_TRUE(*is_empty_folder(model()));
  }
  write_bytes(model() + "/a", "begun");
  write_bytes(model() + "/a.tmp-12-0", "half a file");
  write_bytes(model() + "/notes.tmp-1", "mine");
  const auto folder = WrittenFolder::open(writing("a"));
  ASSERT_TRUE(folder.ok()) << folder.error().to_string();
  ASSERT_TRUE((*folder)->begin().ok());
  EXPECT_FALSE(path_exists(model() + "/a.tmp-12-0"));
  EXPECT_EQ(read_bytes(model() + "/notes.tmp-1"), "mine");
}

TEST_F(WrittenFolderTest, SourcesStayWhereTheyAre) {
  write_model("a");
  std::filesystem::create_symlink(model(), parent_ / "link");
  FolderWriting same = writing("b");
  same.sources = {parent_ / "link"};
  expect_error(WrittenFolder::open(same), ErrorCode::kInvalidArgument, {model(), "is an input"});
  std::filesystem::create_directory(parent_ / "links");
  std::filesystem::create_symlink(model() + "/experts/0", parent_ / "links/0");
  FolderWriting linked = writing("b");
  linked.sources = {parent_ / "links", parent_ / "links/0"};
  expect_error(WrittenFolder::open(linked), ErrorCode::kInvalidArgument, {"experts/0"});
  std::filesystem::create_directory(model() + "/inner");
  FolderWriting inner = writing("b");
  inner.sources = {model() + "/inner"};
  expect_error(WrittenFolder::open(inner), ErrorCode::kInvalidArgument,
               {"/inner", "holds the input"});
  expect_model("a");
}

TEST_F(WrittenFolderTest, ASecondWriterIsRefused) {
  const auto first = WrittenFolder::open(writing("a"));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE((*first)->begin().ok());
  fill(**first, "a");
  expect_error(WrittenFolder::open(writing("b")), ErrorCode::kFailedPrecondition,
               {model(), "another moeflux is writing"});
  ASSERT_TRUE((*first)->finish().ok());
  expect_model("a");
}

TEST_F(WrittenFolderTest, AKilledReplacementGoesOnBesideTheOldModel) {
  write_model("a");
  {
    const auto folder = WrittenFolder::open(writing("b"));
    ASSERT_TRUE((*folder)->begin().ok());
    write_bytes((*folder)->path() + "/b", "begun");
  }
  {
    const auto folder = WrittenFolder::open(writing("b"));
    ASSERT_TRUE(folder.ok()) << folder.error().to_string();
    EXPECT_EQ(read_bytes((*folder)->path() + "/b"), "begun");
  }
  {
    const auto folder = WrittenFolder::open(writing("c"));  // another one begins anew
    ASSERT_TRUE(folder.ok()) << folder.error().to_string();
    EXPECT_TRUE(*is_empty_folder((*folder)->path()));
  }
  expect_model("a");
}

TEST_F(WrittenFolderTest, AReplacementKilledAfterTheExchangeIsEndedByTheNextWriter) {
  write_model("a");
  write_bytes(model() + "/notes.txt", "mine");
  {
    const auto folder = WrittenFolder::open(writing("b"));
    ASSERT_TRUE((*folder)->begin().ok());
    fill(**folder, "b");
    write_bytes((*folder)->path() + "/whole-b", "");
    ASSERT_TRUE(exchange_folders((*folder)->path(), model()).ok());
    std::filesystem::remove(beside() + "/experts/0");  // and in the middle of removing
  }
  expect_model("b");
  const auto folder = WrittenFolder::open(writing("b"));
  ASSERT_TRUE(folder.ok()) << folder.error().to_string();
  EXPECT_EQ((*folder)->path(), model());  // nothing is left to write
  EXPECT_FALSE(path_exists(beside()));
  EXPECT_EQ(read_bytes(model() + "/notes.txt"), "mine");
  expect_model("b");
}

TEST_F(WrittenFolderTest, WhatIsInTheWayBesideTheModelIsKept) {
  write_model("a");
  std::filesystem::create_directory(beside());
  write_bytes(beside() + "/notes.txt", "mine");
  expect_error(WrittenFolder::open(writing("b")), ErrorCode::kInvalidArgument,
               {beside(), "move it away"});
  EXPECT_EQ(read_bytes(beside() + "/notes.txt"), "mine");
}

TEST_F(WrittenFolderTest, AFolderThatWasMadeForNothingGoesAndOthersStay) {
  const std::string made = parent_ / "made";
  for (const bool has_begun : {false, true}) {
    FolderWriting writing = this->writing("a");
    writing.directory = made;
    {
      const auto folder = WrittenFolder::open(writing);
      ASSERT_TRUE(folder.ok()) << folder.error().to_string();
      EXPECT_TRUE(std::filesystem::is_directory(made));
      if (has_begun) {
        ASSERT_TRUE((*folder)->begin().ok());
      }
    }
    EXPECT_EQ(std::filesystem::exists(made), has_begun);
  }
  ASSERT_TRUE(WrittenFolder::open(writing("a")).ok());  // and closed: its folder was there
  EXPECT_TRUE(std::filesystem::is_directory(model()));
}

TEST_F(WrittenFolderTest, AFolderIsTooSmallBeforeAnythingIsWritten) {
  EXPECT_TRUE(check_free_space(model(), "model", 0).ok());
  expect_error(check_free_space(model(), "model", uint64_t{1} << 60), ErrorCode::kResourceExhausted,
               {model(), "the model needs", "are free"});
}

}  // namespace
}  // namespace moeflux
