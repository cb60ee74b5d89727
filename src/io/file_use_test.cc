#include "io/file_use.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/file.h"
#include "tests/support/temp_folder.h"

namespace moeflux {
namespace {

class FileUseTest : public ::testing::Test {
 protected:
  std::vector<FileUse> list() const {
    auto files = list_file_uses(folder_.path());
    EXPECT_TRUE(files.ok());
    return files.ok() ? *files : std::vector<FileUse>();
  }
  std::string path_of(const FileUse& file) const { return folder_ / file.name; }

  testing::TempFolder folder_;
};

TEST_F(FileUseTest, ListsSizesAndTimes) {
  testing::write_bytes(folder_ / "b", "12345");
  testing::write_bytes(folder_ / "a", "");
  ASSERT_EQ(mkdir((folder_ / "c").c_str(), 0777), 0);
  ASSERT_EQ(symlink((folder_ / "a").c_str(), (folder_ / "d").c_str()), 0);
  constexpr int64_t kUsed = int64_t{1'600'000'000} * 1'000'000'000;
  ASSERT_TRUE(note_file_use(folder_ / "b", kUsed).ok());
  const std::vector<FileUse> files = list();
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "a");
  EXPECT_EQ(files[0].size_bytes, 0u);
  EXPECT_EQ(files[1].name, "b");
  EXPECT_EQ(files[1].size_bytes, 5u);
  EXPECT_EQ(files[1].used_ns, kUsed);
  EXPECT_GT(wall_clock_ns(), kUsed);
}

TEST_F(FileUseTest, WhatIsNotThereIsAnError) {
  const auto files = list_file_uses(folder_ / "none");
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code(), ErrorCode::kNotFound);
  const Status noted = note_file_use(folder_ / "none", 1);
  ASSERT_FALSE(noted.ok());
  EXPECT_EQ(noted.error().code(), ErrorCode::kNotFound);
  EXPECT_FALSE(remove_abandoned_file(folder_ / "none"));
}

TEST_F(FileUseTest, TemporaryFileOfALivingWriterStays) {
  auto writer = AtomicFileWriter::create(folder_ / "file");
  ASSERT_TRUE(writer.ok());
  ASSERT_EQ(list().size(), 1u);
  const std::string temporary = path_of(list()[0]);
  EXPECT_FALSE(remove_abandoned_file(temporary));
  ASSERT_TRUE((*writer)->commit().ok());
  EXPECT_TRUE(path_exists(folder_ / "file"));
  EXPECT_FALSE(path_exists(temporary));
}

/// A process that holds a writer until it is killed.
class WriterProcess {
 public:
  explicit WriterProcess(const std::string& path) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const auto writer = AtomicFileWriter::create(path);
      const char ready = writer.ok() ? 'y' : 'n';
      if (write(ends[1], &ready, 1) != 1) _exit(1);
      while (true) pause();
    }
    char ready = 'n';
    EXPECT_EQ(read(ends[0], &ready, 1), 1);
    EXPECT_EQ(ready, 'y');
    close(ends[0]);
    close(ends[1]);
  }
  ~WriterProcess() { kill(); }
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;
  void kill() {
    if (pid_ <= 0) return;
    EXPECT_EQ(::kill(pid_, SIGKILL), 0);
    EXPECT_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

TEST_F(FileUseTest, TemporaryFileOfAKilledProcessGoes) {
  WriterProcess process(folder_ / "file");
  ASSERT_EQ(list().size(), 1u);
  const std::string temporary = path_of(list()[0]);
  EXPECT_FALSE(remove_abandoned_file(temporary));
  process.kill();
  EXPECT_TRUE(path_exists(temporary));
  EXPECT_TRUE(remove_abandoned_file(temporary));
  EXPECT_FALSE(path_exists(temporary));
}

TEST_F(FileUseTest, LinksAreNotFollowed) {
  testing::write_bytes(folder_ / "file", "mine");
  ASSERT_EQ(symlink((folder_ / "file").c_str(), (folder_ / "link").c_str()), 0);
  EXPECT_FALSE(remove_abandoned_file(folder_ / "link"));
  EXPECT_TRUE(path_exists(folder_ / "link"));
  EXPECT_TRUE(path_exists(folder_ / "file"));
}

TEST_F(FileUseTest, ALockKeepsOthersOutUntilItIsGivenBack) {
  const std::string path = folder_ / "name.lock";
  auto lock = FileLock::take(path);
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(FileLock::take(path).error().code(), ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(FileLock::take(folder_ / "other.lock").ok());
  lock->reset();
  EXPECT_TRUE(list().empty());
  EXPECT_TRUE(FileLock::take(path).ok());
  EXPECT_EQ(FileLock::take(folder_ / "none/name").error().code(), ErrorCode::kNotFound);
}

TEST_F(FileUseTest, ALockWhoseFileIsRemovedIsSomebodyElses) {
  const std::string path = folder_ / "name.lock";
  auto lock = FileLock::take(path);
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE((*lock)->is_held());
  ASSERT_TRUE(erase_file(path).ok());
  EXPECT_FALSE((*lock)->is_held());
  const auto next = FileLock::take(path);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE((*lock)->is_held());
  lock->reset();
  EXPECT_TRUE((*next)->is_held());
}

TEST_F(FileUseTest, ADeadProcessHoldsNoLock) {
  const std::string path = folder_ / "name.lock";
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FileLock::take(path);
    _exit(lock.ok() ? 0 : 1);  // no destructor runs
  }
  int status = 1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(list().size(), 1u);  // the file that it left
  EXPECT_TRUE(FileLock::take(path).ok());
  EXPECT_TRUE(list().empty());
}

TEST_F(FileUseTest, AnErasedFileIsGoneAndAnAbsentOneAnError) {
  testing::write_bytes(folder_ / "a", "1");
  EXPECT_TRUE(erase_file(folder_ / "a").ok());
  EXPECT_TRUE(list().empty());
  EXPECT_EQ(erase_file(folder_ / "a").error().code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace moeflux
