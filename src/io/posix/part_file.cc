#include "io/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <climits>
#include <utility>

#include "io/file.h"
#include "io/output_folder.h"
#include "io/path_text.h"
#include "io/posix/errno_text.h"
#include "io/posix/folder_entries.h"
#include "io/posix/sync_folder.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

constexpr size_t kPartBytesMax = size_t{1} << 30;  // of one call: Linux cuts it at 2 GiB

class PosixPartFile final : public PartFile {
 public:
  PosixPartFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  Result<uint64_t> size_bytes() const override {
    struct stat info = {};
    if (::fstat(fd_.get(), &info) != 0) return errno_error(errno, path_, "cannot stat");
    return static_cast<uint64_t>(info.st_size);
  }

  Status write_at(uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t count = ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), kPartBytesMax),
                                     static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == ENOSPC || errno == EDQUOT)) {
        return make_error(ErrorCode::kResourceExhausted, "{}: the drive is full", path_);
      }
      if (count < 0) return errno_error(errno, path_, "cannot write");
      offset += static_cast<uint64_t>(count);
      bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return {};
  }

  Status read_at(uint64_t offset, std::span<std::byte> into) const override {
    while (!into.empty()) {
      const ssize_t count = ::pread(fd_.get(), into.data(), std::min(into.size(), kPartBytesMax),
                                    static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return errno_error(errno, path_, "cannot read");
      if (count == 0) {
        return make_error(ErrorCode::kIo, "{}: ends at byte {}, expected {} more", path_, offset,
                          into.size());
      }
      offset += static_cast<uint64_t>(count);
      into = into.subspan(static_cast<size_t>(count));
    }
    return {};
  }

  Status resize(uint64_t bytes) override {
    while (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
      if (errno != EINTR) return errno_error(errno, path_, "cannot set the size");
    }
    return {};
  }

  Status publish(const std::string& path) override {
    if (::fsync(fd_.get()) != 0) return errno_error(errno, path_, "cannot sync");
    if (::rename(path_.c_str(), path.c_str()) != 0) {
      return errno_error(errno, path_, formatted("cannot rename to {}", path));
    }
    path_ = path;
    return sync_folder(folder_of(path));
  }

 private:
  std::string path_;
  const UniqueFd fd_;
};

FolderEntry::Kind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return FolderEntry::Kind::kFile;
  if (S_ISDIR(mode)) return FolderEntry::Kind::kFolder;
  return S_ISLNK(mode) ? FolderEntry::Kind::kLink : FolderEntry::Kind::kOther;
}

}  // namespace

Result<std::unique_ptr<PartFile>> PartFile::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!fd.is_open()) return errno_error(errno, path, "cannot open to write");
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return errno_error(errno, path, "cannot stat");
  if (!S_ISREG(info.st_mode)) {
    return make_error(ErrorCode::kInvalidArgument, "{} is not a regular file", path);
  }
  return std::unique_ptr<PartFile>(std::make_unique<PosixPartFile>(path, std::move(fd)));
}

uint64_t disk_bytes(const std::string& path) {
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * 512 : 0;
}

Status create_folders(const std::string& path, FileAccess access) {
  if (path.empty() || is_directory(path)) return {};
  const std::string above = folder_of(path);
  if (above != path && above != ".") MF_RETURN_IF_ERROR(create_folders(above, access));
  return create_folder(path, access);
}

Status write_link(const std::string& path, const std::string& target) {
  // Two processes may write the same link: each has a name of its own until the rename.
  const std::string own = formatted("{}.link-{}", path, ::getpid());
  if (::unlink(own.c_str()) != 0 && errno != ENOENT)
    return errno_error(errno, own, "cannot remove");
  if (::symlink(target.c_str(), own.c_str()) != 0) {
    return errno_error(errno, path, formatted("cannot link to {}", target));
  }
  if (::rename(own.c_str(), path.c_str()) == 0) return {};
  const Error error = errno_error(errno, path, formatted("cannot link to {}", target));
  ::unlink(own.c_str());
  return error;
}

std::optional<std::string> read_link(const std::string& path) {
  std::array<char, PATH_MAX> text;
  const ssize_t count = ::readlink(path.c_str(), text.data(), text.size());
  if (count < 0 || static_cast<size_t>(count) == text.size()) return std::nullopt;
  return std::string(text.data(), static_cast<size_t>(count));
}

Result<std::vector<FolderEntry>> list_folder(const std::string& path) {
  std::vector<FolderEntry> entries;
  MF_RETURN_IF_ERROR(visit_entries(path, [&](int folder, const char* name) {
    struct stat info = {};
    if (::fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    entries.push_back({name, kind_of(info.st_mode), static_cast<uint64_t>(info.st_size)});
  }));
  std::ranges::sort(entries, {}, &FolderEntry::name);
  return entries;
}

}  // namespace moeflux
