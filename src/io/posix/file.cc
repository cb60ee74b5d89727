// Reading files with open and pread. No mmap: a device error must come back as a Status, not as
// SIGBUS, and reads must be charged to the memory they fill.
#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <mutex>

#include "base/units.h"
#include "io/page_cache.h"
#include "io/posix/errno_text.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

// Linux cuts one pread at 2 GiB - 4 KiB, macOS refuses more than INT_MAX.
constexpr size_t kReadBytesMax = size_t{1} << 30;

struct OpenedFile {
  UniqueFd fd;
  uint64_t size_bytes = 0;
};

Result<OpenedFile> open_regular(const std::string& path) {
  // O_NONBLOCK: opening a FIFO that nobody writes would hang; for regular files it means nothing.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return errno_error(errno, path, "cannot open");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return errno_error(errno, path, "cannot stat");
  if (S_ISDIR(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, "{} is a folder, expected a regular file", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{} is a device, socket or pipe, expected a regular file", path);
  }
  return OpenedFile{std::move(fd), static_cast<uint64_t>(info.st_size)};
}

/// One pread with EINTR retried: the bytes that came, 0 at the end of the file.
Result<size_t> read_some(int fd, const std::string& path, uint64_t offset,
                         std::span<std::byte> into) {
  const size_t wanted = std::min(into.size(), kReadBytesMax);
  while (true) {
    const ssize_t count = ::pread(fd, into.data(), wanted, static_cast<off_t>(offset));
    if (count >= 0) return static_cast<size_t>(count);
    const int number = errno;
    if (number == EINTR) continue;
    return make_error(ErrorCode::kIo, "{}: reading {} bytes at offset {} failed: {}", path, wanted,
                      offset, std::system_category().message(number));
  }
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, OpenedFile opened)
      : path_(std::move(path)), fd_(std::move(opened.fd)), size_bytes_(opened.size_bytes) {}

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return size_bytes_; }

  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    // Beyond INT64_MAX the offset would turn negative in the system call.
    if (offset > static_cast<uint64_t>(INT64_MAX) - into.size()) return end_of_file(offset, into);
    size_t done = 0;
    while (done < into.size()) {
      MF_ASSIGN_OR_RETURN(const size_t count,
                          read_some(fd_.get(), path_, offset + done, into.subspan(done)));
      if (count == 0) return end_of_file(offset, into);
      done += count;
    }
    return {};
  }

  FileDescriptors descriptors() const override {
    std::call_once(direct_opened_, [this] { direct_fd_ = open_direct(); });
    return {.buffered = fd_.get(), .direct = direct_fd_.get()};
  }

 private:
  UniqueFd open_direct() const {
    UniqueFd direct(open_uncached(path_));
    struct stat ours = {};
    struct stat theirs = {};
    // The name may mean another file by now.
    if (!direct.is_open() || ::fstat(fd_.get(), &ours) != 0 ||
        ::fstat(direct.get(), &theirs) != 0 || ours.st_dev != theirs.st_dev ||
        ours.st_ino != theirs.st_ino) {
      return UniqueFd();
    }
    return direct;
  }

  Status end_of_file(uint64_t offset, std::span<std::byte> into) const {
    return make_error(ErrorCode::kIo,
                      "{}: reading {} bytes at offset {} met the end of the file, which had {} "
                      "bytes when it was opened",
                      path_, into.size(), offset, size_bytes_);
  }

  std::string path_;
  UniqueFd fd_;
  uint64_t size_bytes_;
  mutable std::once_flag direct_opened_;
  mutable UniqueFd direct_fd_;  // written once, under direct_opened_
};

Error too_large(const std::string& path, uint64_t bytes, uint64_t bytes_max) {
  return make_error(ErrorCode::kResourceExhausted, "{} has {} bytes, expected at most {}", path,
                    bytes, bytes_max);
}

}  // namespace

Result<std::unique_ptr<File>> open_file(const std::string& path) {
  MF_ASSIGN_OR_RETURN(OpenedFile opened, open_regular(path));
  return std::unique_ptr<File>(std::make_unique<PosixFile>(path, std::move(opened)));
}

Result<std::string> read_text_file(const std::string& path, uint64_t bytes_max) {
  MF_ASSIGN_OR_RETURN(const OpenedFile opened, open_regular(path));
  if (opened.size_bytes > bytes_max) return too_large(path, opened.size_bytes, bytes_max);
  // Files in /proc say 0 bytes and files may grow, so the end is where a read returns nothing.
  std::string text;
  size_t done = 0;
  while (true) {
    const size_t announced = opened.size_bytes + 1;  // one more, to meet the end in one call
    text.resize(std::max<size_t>(announced, done + 4 * kKiB));
    MF_ASSIGN_OR_RETURN(
        const size_t count,
        read_some(opened.fd.get(), path, done,
                  std::as_writable_bytes(std::span(text.data() + done, text.size() - done))));
    done += count;
    if (done > bytes_max) return too_large(path, done, bytes_max);
    if (count == 0) break;
  }
  text.resize(done);
  return text;
}

bool path_exists(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0;
}

bool is_directory(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

}  // namespace moeflux
