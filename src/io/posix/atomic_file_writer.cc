// AtomicFileWriter: a temporary file beside the target, made durable before it takes the name.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>

#include "io/file.h"
#include "io/path_text.h"
#include "io/posix/errno_text.h"
#include "io/posix/sync_folder.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

constexpr size_t kBytesPerCallMax = size_t{1} << 30;
constexpr uint64_t kWritebackBytes = uint64_t{8} << 20;
constexpr int kNameAttemptsMax = 1000;

int sync_file(int fd) {
#ifdef F_FULLFSYNC
  // On macOS fsync stops at the drive's cache; not every file system knows the full form.
  if (::fcntl(fd, F_FULLFSYNC) == 0) return 0;
#endif
  return ::fsync(fd);
}

// The lock says that the writer lives, whoever has its process id: it ends with the file's last
// descriptor. Only remove_abandoned_file() holds it otherwise, and takes the name away. Where the
// file system has no locks, that removes nothing.
bool lock_as_writer(int fd) {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && info.st_nlink > 0;
}

class PosixAtomicFileWriter final : public AtomicFileWriter {
 public:
  PosixAtomicFileWriter(std::string path, std::string temporary_path, UniqueFd fd)
      : path_(std::move(path)), temporary_path_(std::move(temporary_path)), fd_(std::move(fd)) {}
  PosixAtomicFileWriter(const PosixAtomicFileWriter&) = delete;
  PosixAtomicFileWriter& operator=(const PosixAtomicFileWriter&) = delete;
  ~PosixAtomicFileWriter() override {
    if (!renamed_) ::unlink(temporary_path_.c_str());
  }

  Status write(std::span<const std::byte> bytes) override {
    MF_RETURN_IF_ERROR(check_open());
    while (!bytes.empty()) {
      const ssize_t count =
          ::write(fd_.get(), bytes.data(), std::min(bytes.size(), kBytesPerCallMax));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail(errno, "cannot write");
      bytes = bytes.subspan(static_cast<size_t>(count));
      begin_writeback(static_cast<uint64_t>(count));
    }
    return {};
  }

  Status commit() override {
    MF_RETURN_IF_ERROR(check_open());
    if (sync_file(fd_.get()) != 0) return fail(errno, "cannot sync");
    // The lock lasts until the file has its name.
    const UniqueFd lock(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!lock.is_open()) return fail(errno, "cannot keep its lock");
    // Network file systems report a full disk as late as here.
    if (::close(fd_.release()) != 0) return fail(errno, "cannot close");
    if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
      return fail(errno, "cannot rename the complete temporary file");
    }
    renamed_ = true;
    return sync_folder(folder_of(path_));
  }

 private:
  // Large files go to the drive while they are written: otherwise all of it waits for the sync.
  void begin_writeback(uint64_t written) {
    written_ += written;
#ifdef SYNC_FILE_RANGE_WRITE
    if (written_ - begun_ < kWritebackBytes) return;
    // A wish; a failure shows in the sync.
    ::sync_file_range(fd_.get(), static_cast<off_t>(begun_), static_cast<off_t>(written_ - begun_),
                      SYNC_FILE_RANGE_WRITE);
    begun_ = written_;
#endif
  }

  Status check_open() const {
    if (fd_.is_open()) return {};
    return make_error(ErrorCode::kFailedPrecondition,
                      "{}: the writer has been committed or has failed", path_);
  }

  Status fail(int number, std::string_view what) {
    fd_ = UniqueFd();  // a file with a hole where a write failed must not be committed
    return errno_error(number, path_, what);
  }

  std::string path_;
  std::string temporary_path_;
  UniqueFd fd_;
  uint64_t written_ = 0;
  uint64_t begun_ = 0;  // of these, handed to the drive
  bool renamed_ = false;
};

}  // namespace

Result<std::unique_ptr<AtomicFileWriter>> AtomicFileWriter::create(const std::string& path,
                                                                   FileAccess access) {
  const mode_t mode = access == FileAccess::kPrivate ? 0600 : 0666;
  // O_EXCL makes the name ours: other threads and leftovers of a dead process move us to the next.
  for (int attempt = 0; attempt < kNameAttemptsMax; ++attempt) {
    std::string temporary = formatted("{}.tmp-{}-{}", path, ::getpid(), attempt);
    UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (fd.is_open() && !lock_as_writer(fd.get())) continue;
    if (fd.is_open()) {
      return std::unique_ptr<AtomicFileWriter>(
          std::make_unique<PosixAtomicFileWriter>(path, std::move(temporary), std::move(fd)));
    }
    if (errno != EEXIST && errno != EINTR) {
      return errno_error(errno, path, "cannot create a temporary file beside it");
    }
  }
  return make_error(ErrorCode::kIo, "{}: {} temporary files beside it exist already", path,
                    kNameAttemptsMax);
}

Status write_text_file(const std::string& path, std::string_view text) {
  MF_ASSIGN_OR_RETURN(const auto file, AtomicFileWriter::create(path));
  MF_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text.data(), text.size()))));
  return file->commit();
}

}  // namespace moeflux
