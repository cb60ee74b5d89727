#include "io/output_folder.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <memory>
#include <string_view>

#include "io/file.h"
#include "io/posix/errno_text.h"

namespace moeflux {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

}  // namespace

Status create_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  if (errno != EEXIST) return errno_error(errno, path, "cannot create the folder");
  if (is_directory(path)) return {};
  return make_error(ErrorCode::kInvalidArgument, "{}: is a file, expected a folder", path);
}

Result<bool> is_empty_folder(const std::string& path) {
  const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(path.c_str()));
  if (stream == nullptr) return errno_error(errno, path, "cannot list the folder");
  while (true) {
    errno = 0;  // readdir returns null for both the end and a failure
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) return errno_error(errno, path, "cannot list the folder");
    if (entry == nullptr) return true;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") return false;
  }
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

}  // namespace moeflux
