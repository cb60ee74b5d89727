#include "io/output_folder.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace moeflux
