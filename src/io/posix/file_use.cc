#include "io/file_use.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/format.h"
#include "io/output_folder.h"
#include "io/path_text.h"
#include "io/posix/errno_text.h"
#include "io/posix/folder_entries.h"
#include "io/posix/sync_folder.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

constexpr int64_t kNanoseconds = 1'000'000'000;

// File systems keep times that 64 bits of nanoseconds do not reach.
int64_t nanoseconds(const timespec& time) {
  constexpr int64_t kSecondsMax = INT64_MAX / kNanoseconds - 1;
  return std::clamp(int64_t{time.tv_sec}, -kSecondsMax, kSecondsMax) * kNanoseconds +
         int64_t{time.tv_nsec};
}

int64_t modified_ns(const struct stat& info) {
#ifdef __APPLE__
  return nanoseconds(info.st_mtimespec);
#else
  return nanoseconds(info.st_mtim);
#endif
}

bool is_named(int fd, const std::string& path) {
  struct stat ours = {};
  struct stat named = {};
  return ::fstat(fd, &ours) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

class PosixFileLock final : public FileLock {
 public:
  PosixFileLock(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  PosixFileLock(const PosixFileLock&) = delete;
  PosixFileLock& operator=(const PosixFileLock&) = delete;
  // The name goes while the lock is ours: whoever opened the file before finds it gone, and takes
  // another.
  ~PosixFileLock() override {
    if (is_held()) ::unlink(path_.c_str());
  }
  bool is_held() const override { return is_named(fd_.get(), path_); }

 private:
  const std::string path_;
  const UniqueFd fd_;
};

}  // namespace

Result<std::vector<FileUse>> list_file_uses(const std::string& directory) {
  std::vector<FileUse> files;
  MF_RETURN_IF_ERROR(visit_entries(directory, [&](int folder, const char* name) {
    struct stat info = {};
    if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return;
    files.push_back({name, static_cast<uint64_t>(info.st_size), modified_ns(info)});
  }));
  std::ranges::sort(files, {}, &FileUse::name);
  return files;
}

int64_t wall_clock_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return nanoseconds(now);
}

Status note_file_use(const std::string& path, int64_t used_ns) {
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(used_ns / kNanoseconds);
  times[1].tv_nsec = static_cast<decltype(times[1].tv_nsec)>(used_ns % kNanoseconds);
  if (::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0) return {};
  return errno_error(errno, path, "cannot set the time of its last use");
}

std::vector<FileUse> remove_oldest_files(const std::string& directory, std::vector<FileUse> files,
                                         const FileLimits& limits) {
  std::ranges::stable_sort(files, std::ranges::greater(), &FileUse::used_ns);
  std::vector<FileUse> kept;
  uint64_t room = limits.bytes_max;
  for (FileUse& file : files) {
    if (file.size_bytes <= room && kept.size() < limits.count_max) {
      room -= file.size_bytes;
      kept.push_back(std::move(file));
      continue;
    }
    (void)remove_file(formatted("{}/{}", directory, file.name));
    // Older ones go too.
    if (file.size_bytes <= limits.bytes_max) room = 0;
  }
  return kept;
}

bool remove_abandoned_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.is_open() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  // Before the lock was ours the writer may have finished, and another begun under this name. While
  // it is ours nobody begins: a writer that does not get the lock takes another name.
  return is_named(fd.get(), path) && ::unlink(path.c_str()) == 0;
}

Status erase_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0) return errno_error(errno, path, "cannot remove");
  return sync_folder(folder_of(path));
}

Result<std::unique_ptr<FileLock>> FileLock::take(const std::string& path) {
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.is_open() && errno == EINTR) continue;
    if (!fd.is_open()) return errno_error(errno, path, "cannot open the file to lock it");
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) {
        return make_error(ErrorCode::kFailedPrecondition, "{}: another process has the lock", path);
      }
      if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOTSUP) {
        return errno_error(errno, path, "cannot lock");
      }
    }
    // Between opening and locking whoever had it may have taken the name away.
    if (!is_named(fd.get(), path)) continue;
    return std::unique_ptr<FileLock>(std::make_unique<PosixFileLock>(path, std::move(fd)));
  }
}

}  // namespace moeflux
