#include "io/output_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

using testing::expect_error;
using testing::TempFolder;
using testing::write_bytes;

TEST(OutputFolder, IsMadeOnceAndKept) {
  const TempFolder folder;
  EXPECT_TRUE(create_folder(folder / "new").ok());
  write_bytes(folder / "new/file", "x");
  EXPECT_TRUE(create_folder(folder / "new").ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "new/file"));
  expect_error(create_folder(folder / "no/parent"), ErrorCode::kNotFound, {"no/parent"});
  expect_error(create_folder(folder / "new/file"), ErrorCode::kInvalidArgument, {"is a file"});
}

TEST(OutputFolder, PrivateOnesAreTheirUsersAloneAndOthersKeepTheirMode) {
  const TempFolder folder;
  const mode_t umask = ::umask(022);
  EXPECT_TRUE(create_folder(folder / "ordinary").ok());
  EXPECT_TRUE(create_folder(folder / "ordinary", FileAccess::kPrivate).ok());
  EXPECT_TRUE(create_folder(folder / "private", FileAccess::kPrivate).ok());
  ::umask(umask);
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(folder / "ordinary").permissions(), perms(0755));
  EXPECT_EQ(std::filesystem::status(folder / "private").permissions(), perms(0700));
}

TEST(OutputFolder, FilesAndFoldersMakeItNonEmpty) {
  const TempFolder folder;
  EXPECT_TRUE(*is_empty_folder(folder.path()));
  ASSERT_TRUE(create_folder(folder / "inner").ok());
  EXPECT_FALSE(*is_empty_folder(folder.path()));
  write_bytes(folder / "inner/.hidden", "");
  EXPECT_FALSE(*is_empty_folder(folder / "inner"));
  expect_error(is_empty_folder(folder / "none"), ErrorCode::kNotFound, {"none"});
}

TEST(OutputFolder, FreeSpaceIsThatOfItsFileSystem) {
  const TempFolder folder;
  const auto free = free_disk_bytes(folder.path());
  ASSERT_TRUE(free.ok());
  EXPECT_LE(*free, std::filesystem::space(folder.path()).capacity);
  expect_error(free_disk_bytes(folder / "none"), ErrorCode::kNotFound, {"none"});
}

TEST(OutputFolder, RemovingAFileTwiceIsNoError) {
  const TempFolder folder;
  write_bytes(folder / "file", "x");
  EXPECT_TRUE(remove_file(folder / "file").ok());
  EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  EXPECT_TRUE(remove_file(folder / "file").ok());
  EXPECT_FALSE(remove_file(folder.path()).ok());
}

TEST(OutputFolder, AFolderIsTheSameUnderEverySpelling) {
  const TempFolder folder;
  ASSERT_TRUE(create_folder(folder / "a").ok());
  ASSERT_TRUE(create_folder(folder / "b").ok());
  std::filesystem::create_symlink(folder / "a", folder / "link");
  const std::string path = *real_path(folder / "a");
  for (const char* spelling : {"a/", "./a", "b/../a", "link", "link/."}) {
    EXPECT_EQ(*file_id(folder / spelling), *file_id(folder / "a")) << spelling;
    EXPECT_EQ(*real_path(folder / spelling), path) << spelling;
  }
  EXPECT_NE(*file_id(folder / "a"), *file_id(folder / "b"));
  expect_error(file_id(folder / "none"), ErrorCode::kNotFound, {"none"});
  expect_error(real_path(folder / "none"), ErrorCode::kNotFound, {"none"});
}

TEST(OutputFolder, MovedContentsMergeFoldersAndOverwriteNothing) {
  const TempFolder folder;
  for (const char* name : {"from", "from/both", "from/own", "to", "to/both"}) {
    ASSERT_TRUE(create_folder(folder / name).ok());
  }
  write_bytes(folder / "from/both/x", "x");
  write_bytes(folder / "from/own/y", "y");
  write_bytes(folder / "to/both/z", "z");
  EXPECT_TRUE(move_contents(folder / "from", folder / "to").ok());
  EXPECT_TRUE(*is_empty_folder(folder / "from"));
  EXPECT_EQ(testing::read_bytes(folder / "to/both/x"), "x");
  EXPECT_EQ(testing::read_bytes(folder / "to/own/y"), "y");
  write_bytes(folder / "from/z", "mine");
  write_bytes(folder / "to/z", "theirs");
  expect_error(move_contents(folder / "from", folder / "to"), ErrorCode::kInvalidArgument,
               {"from/z", "to/z", "exists"});
  EXPECT_EQ(testing::read_bytes(folder / "from/z"), "mine");
  EXPECT_EQ(testing::read_bytes(folder / "to/z"), "theirs");
}

TEST(OutputFolder, ExchangedFoldersHaveEachOthersContents) {
  const TempFolder folder;
  ASSERT_TRUE(create_folder(folder / "a").ok());
  ASSERT_TRUE(create_folder(folder / "b").ok());
  write_bytes(folder / "a/file", "of a");
  write_bytes(folder / "b/file", "of b");
  const Status exchanged = exchange_folders(folder / "a", folder / "b");
  // File systems may lack the step; then nothing has changed.
  if (!exchanged.ok()) expect_error(exchanged, ErrorCode::kUnsupported, {folder / "a"});
  EXPECT_EQ(testing::read_bytes(folder / "a/file"), exchanged.ok() ? "of b" : "of a");
  EXPECT_EQ(testing::read_bytes(folder / "b/file"), exchanged.ok() ? "of a" : "of b");
  expect_error(exchange_folders(folder / "a", folder / "none"), ErrorCode::kNotFound, {"none"});
}

TEST(FolderLock, IsHeldByOneAndGivenBack) {
  const TempFolder folder;
  {
    const auto first = FolderLock::take(folder.path());
    ASSERT_TRUE(first.ok()) << first.error().to_string();
    expect_error(FolderLock::take(folder / "."), ErrorCode::kFailedPrecondition,
                 {folder.path(), "another moeflux is writing"});
  }
  EXPECT_TRUE(FolderLock::take(folder.path()).ok());
  EXPECT_TRUE(*is_empty_folder(folder.path()));
  expect_error(FolderLock::take(folder / "none"), ErrorCode::kNotFound, {"none"});
}

}  // namespace
}  // namespace moeflux
