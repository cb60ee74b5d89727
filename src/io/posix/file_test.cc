#include "io/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "io/pipe_text.h"

namespace moeflux {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A folder of its own for every test.
class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "moeflux_file_" + std::to_string(::getpid()) + info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(std::string_view name) const { return folder_ + "/" + std::string(name); }
  std::string make(std::string_view name, std::string_view text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  std::string folder_;
};

TEST_F(FileTest, ReadsAtOffsets) {
  const auto file = open_file(make("a", "0123456789"));
  ASSERT_TRUE(file.ok()) << file.error().to_string();
  EXPECT_EQ((*file)->size_bytes(), 10u);
  EXPECT_EQ((*file)->path(), path("a"));
  std::string text(4, '\0');
  ASSERT_TRUE((*file)->read_at(3, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, "3456");
  EXPECT_TRUE((*file)->read_at(10, {}).ok());
}

TEST_F(FileTest, EndOfFileIsAnIoErrorWithPathAndOffset) {
  const auto file = open_file(make("a", "0123456789"));
  ASSERT_TRUE(file.ok());
  std::string text(4, '\0');
  for (const uint64_t offset : {uint64_t{8}, uint64_t{100}, UINT64_MAX, UINT64_MAX - 2}) {
    const Status status = (*file)->read_at(offset, std::as_writable_bytes(std::span(text)));
    ASSERT_FALSE(status.ok()) << offset;
    EXPECT_EQ(status.error().code(), ErrorCode::kIo);
    EXPECT_NE(status.error().message().find(path("a")), std::string::npos);
    EXPECT_NE(status.error().message().find(std::to_string(offset)), std::string::npos);
  }
}

TEST_F(FileTest, FileThatShrankAfterOpeningIsAnIoError) {
  const auto file = open_file(make("a", "0123456789"));
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path("a"), 4);
  std::string text(8, '\0');
  const Status status = (*file)->read_at(0, std::as_writable_bytes(std::span(text)));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kIo);
}

TEST_F(FileTest, OpenRefusesMissingFilesFoldersAndPipes) {
  const auto missing = open_file(path("nobody"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message().find(path("nobody")), std::string::npos);

  const auto folder = open_file(folder_);
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code(), ErrorCode::kInvalidArgument);

  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const auto pipe = open_file(path("pipe"));  // must not wait for a writer
  ASSERT_FALSE(pipe.ok());
  EXPECT_EQ(pipe.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(FileTest, ReadTextFileReturnsEveryByteUpToTheLimit) {
  const std::string text(100'001, 'x');
  make("long", text);
  make("empty", "");
  EXPECT_EQ(*read_text_file(path("long"), 100'001), text);
  EXPECT_EQ(*read_text_file(path("empty"), 0), "");
  const auto refused = read_text_file(path("long"), 100'000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(refused.error().message().find("100001"), std::string::npos);
  EXPECT_NE(refused.error().message().find("100000"), std::string::npos);
}

#ifdef __linux__
TEST_F(FileTest, APipeIsReadToItsEndWhereTextMayComeFromOne) {
  const std::string pipe = path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const uint64_t bytes_max : {100u, 10u}) {
    std::thread writer([&] { std::ofstream(pipe) << "twenty bytes of text"; });
    const auto text = read_text_file_or_pipe(pipe, bytes_max);
    writer.join();
    ASSERT_EQ(text.ok(), bytes_max == 100);
    EXPECT_EQ(text.ok() ? *text : "twenty bytes of text", "twenty bytes of text");
  }
  EXPECT_EQ(read_text_file_or_pipe(make("file", "a"), 10).value(), "a");
  EXPECT_FALSE(read_text_file_or_pipe(folder_, 10).ok());
}

TEST_F(FileTest, ReadTextFileReadsProcFilesThatClaimToBeEmpty) {
  const auto text = read_text_file("/proc/self/status", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.error().to_string();
  EXPECT_NE(text->find("VmRSS"), std::string::npos);
  const auto refused = read_text_file("/proc/self/status", 10);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
}
#endif

TEST_F(FileTest, AtomicWriterShowsNothingUntilCommit) {
  make("a", "old");
  auto writer = AtomicFileWriter::create(path("a"));
  ASSERT_TRUE(writer.ok()) << writer.error().to_string();
  ASSERT_TRUE((*writer)->write(bytes_of("new ")).ok());
  ASSERT_TRUE((*writer)->write(bytes_of("text")).ok());
  EXPECT_EQ(*read_text_file(path("a"), 100), "old");
  ASSERT_TRUE((*writer)->commit().ok());
  EXPECT_EQ(*read_text_file(path("a"), 100), "new text");
  EXPECT_EQ(*list_files(folder_), std::vector<std::string>{"a"});
  EXPECT_EQ((*writer)->write(bytes_of("x")).error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ((*writer)->commit().error().code(), ErrorCode::kFailedPrecondition);
}

TEST_F(FileTest, AtomicWriterWithoutCommitLeavesNothing) {
  {
    auto writer = AtomicFileWriter::create(path("a"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->write(bytes_of("text")).ok());
    EXPECT_EQ(list_files(folder_)->size(), 1u);
  }
  EXPECT_TRUE(list_files(folder_)->empty());
}

TEST_F(FileTest, PrivateFilesAreTheirUsersAloneFromTheFirstByteOn) {
  using std::filesystem::perms;
  const mode_t umask = ::umask(022);
  const auto only_mode = [&] {  // of the one file in the folder, whatever its name is meanwhile
    return std::filesystem::status(path(list_files(folder_)->at(0))).permissions();
  };
  {
    const auto ordinary = AtomicFileWriter::create(path("a"));
    ASSERT_TRUE((*ordinary)->commit().ok());
    EXPECT_EQ(only_mode(), perms(0644));
  }
  std::filesystem::remove(path("a"));
  {
    const auto hidden = AtomicFileWriter::create(path("a"), FileAccess::kPrivate);
    EXPECT_EQ(only_mode(), perms(0600));
    ASSERT_TRUE((*hidden)->commit().ok());
    EXPECT_EQ(only_mode(), perms(0600));
  }
  ::umask(umask);
}

TEST_F(FileTest, TwoAtomicWritersOfOnePathDoNotMeet) {
  auto first = AtomicFileWriter::create(path("a"));
  auto second = AtomicFileWriter::create(path("a"));
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE((*first)->write(bytes_of("first")).ok());
  ASSERT_TRUE((*second)->write(bytes_of("second")).ok());
  ASSERT_TRUE((*second)->commit().ok());
  EXPECT_EQ(*read_text_file(path("a"), 100), "second");
  ASSERT_TRUE((*first)->commit().ok());
  EXPECT_EQ(*read_text_file(path("a"), 100), "first");
}

TEST_F(FileTest, AtomicWriterReportsAMissingFolderAndATargetThatIsAFolder) {
  const auto missing = AtomicFileWriter::create(path("nowhere/a"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  std::filesystem::create_directory(path("taken"));
  {
    auto writer = AtomicFileWriter::create(path("taken"));
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ((*writer)->commit().error().code(), ErrorCode::kIo);
  }
  EXPECT_TRUE(list_files(folder_)->empty());
}

TEST_F(FileTest, ListFilesSortsAndSkipsFoldersButFollowsLinks) {
  make("b", "");
  make("a", "");
  std::filesystem::create_directory(path("folder"));
  std::filesystem::create_symlink("a", path("link"));
  std::filesystem::create_symlink("nobody", path("dangling"));
  const auto names = list_files(folder_);
  ASSERT_TRUE(names.ok());
  EXPECT_EQ(*names, (std::vector<std::string>{"a", "b", "link"}));
  EXPECT_EQ(list_files(path("nowhere")).error().code(), ErrorCode::kNotFound);
}

TEST(JoinInside, AcceptsNamesThatStayInside) {
  EXPECT_EQ(*join_inside("dir", "a"), "dir/a");
  EXPECT_EQ(*join_inside("dir/", "a"), "dir/a");
  EXPECT_EQ(*join_inside("", "a"), "a");
  EXPECT_EQ(*join_inside("dir", "sub/a"), "dir/sub/a");
  EXPECT_EQ(*join_inside("dir", "..a"), "dir/..a");
  EXPECT_EQ(*join_inside("dir", "a.."), "dir/a..");
}

TEST(JoinInside, RefusesNamesThatDoNot) {
  const std::string_view with_null("a\0b", 3);
  for (const std::string_view name : std::initializer_list<std::string_view>{
           "", "/etc/passwd", "..", "../a", "a/../../b", "a/..", "a\nb", with_null}) {
    const auto joined = join_inside("dir", name);
    ASSERT_FALSE(joined.ok()) << name;
    EXPECT_EQ(joined.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(joined.error().message().find('\n'), std::string::npos);
  }
}

TEST_F(FileTest, PathQueriesTellFilesFromFolders) {
  make("a", "");
  EXPECT_TRUE(path_exists(path("a")));
  EXPECT_FALSE(is_directory(path("a")));
  EXPECT_TRUE(path_exists(folder_));
  EXPECT_TRUE(is_directory(folder_));
  EXPECT_FALSE(path_exists(path("nobody")));
  EXPECT_FALSE(is_directory(path("nobody")));
}

}  // namespace
}  // namespace moeflux
