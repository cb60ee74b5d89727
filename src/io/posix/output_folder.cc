#include "io/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "io/exchange_names.h"
#include "io/file.h"
#include "io/path_text.h"
#include "io/posix/errno_text.h"
#include "io/posix/folder_entries.h"
#include "io/posix/sync_folder.h"
#include "io/posix/unique_fd.h"

namespace moeflux {
namespace {

/// Names of everything in a folder.
Result<std::vector<std::string>> list_entries(const std::string& path) {
  std::vector<std::string> names;
  MF_RETURN_IF_ERROR(visit_entries(path, [&](int, const char* name) { names.emplace_back(name); }));
  return names;
}

bool is_folder_itself(const std::string& path) {  // and no link to one
  struct stat info = {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

class PosixFolderLock final : public FolderLock {
 public:
  explicit PosixFolderLock(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  UniqueFd fd_;
};

}  // namespace

Status create_folder(const std::string& path, FileAccess access) {
  if (::mkdir(path.c_str(), access == FileAccess::kPrivate ? 0700 : 0777) == 0) return {};
  if (errno != EEXIST) return errno_error(errno, path, "cannot create the folder");
  if (is_directory(path)) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: is a file, expected a folder", path);
}

Result<bool> is_empty_folder(const std::string& path) {
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_entries(path));
  return names.empty();
}

Result<uint64_t> free_disk_bytes(const std::string& path) {
  struct statvfs info = {};
  if (::statvfs(path.c_str(), &info) != 0) {
    return errno_error(errno, path, "cannot tell the free space");
  }
  return uint64_t{info.f_bavail} * uint64_t{info.f_frsize};
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return errno_error(errno, path, "cannot remove");
}

Status remove_empty_folder(const std::string& path) {
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return {};
  return errno_error(errno, path, "cannot remove the folder");
}

Result<std::string> real_path(const std::string& path) {
  std::error_code error;
  const std::filesystem::path found = std::filesystem::canonical(path, error);
  if (error) return errno_error(error.value(), path, "cannot tell where it is");
  return found.string();
}

Result<FileId> file_id(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(errno, path, "cannot stat");
  return FileId{static_cast<uint64_t>(info.st_dev), static_cast<uint64_t>(info.st_ino)};
}

Status move_contents(const std::string& from, const std::string& to) {
  MF_ASSIGN_OR_RETURN(const std::vector<std::string> names, list_entries(from));
  for (const std::string& name : names) {
    const std::string source = formatted("{}/{}", from, name);
    const std::string target = formatted("{}/{}", to, name);
    struct stat info = {};
    if (::lstat(target.c_str(), &info) != 0) {
      if (::rename(source.c_str(), target.c_str()) != 0) {
        return errno_error(errno, source, formatted("cannot move to {}", target));
      }
    } else if (is_folder_itself(source) && S_ISDIR(info.st_mode)) {
      MF_RETURN_IF_ERROR(move_contents(source, target));
      MF_RETURN_IF_ERROR(remove_empty_folder(source));
    } else {
      return make_error(ErrorCode::kInvalidArgument, "{}: cannot move to {}, which exists", source,
                        target);
    }
  }
  return {};
}

Status exchange_folders(const std::string& a, const std::string& b) {
  const int number = exchange_names(a, b);
  if (number == EINVAL || number == ENOSYS || number == EOPNOTSUPP || number == ENOTSUP) {
    return make_error(ErrorCode::kUnsupported,
                      "{}: its file system cannot exchange two folders in one step", a);
  }
  if (number != 0) return errno_error(number, a, formatted("cannot exchange with {}", b));
  MF_RETURN_IF_ERROR(sync_folder(folder_of(a)));
  return sync_folder(folder_of(b));
}

Result<std::unique_ptr<FolderLock>> FolderLock::take(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(errno, path, "cannot open the folder to lock it");
  int result = 0;
  while ((result = ::flock(fd.get(), LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
  }
  // Clusters' file systems are often mounted without locks: there nobody is kept out.
  if (result != 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOTSUP)) result = 0;
  if (result != 0 && errno != EWOULDBLOCK) return errno_error(errno, path, "cannot lock");
  struct stat ours = {};
  struct stat named = {};
  // Between opening and locking the last owner may have put another folder here.
  const bool same = ::fstat(fd.get(), &ours) == 0 && ::stat(path.c_str(), &named) == 0 &&
                    ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
  if (result == 0 && same) {
    return std::unique_ptr<FolderLock>(std::make_unique<PosixFolderLock>(std::move(fd)));
  }
  return make_error(ErrorCode::kFailedPrecondition,
                    "{}: another moeflux is writing into this folder", path);
}

}  // namespace moeflux
