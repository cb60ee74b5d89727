// Folders: what is in them, and names that must stay inside them.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "io/file.h"
#include "io/folder_list.h"
#include "io/posix/errno_text.h"

namespace moeflux {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

bool has_climbing_component(std::string_view name) {
  while (true) {
    const size_t slash = name.find('/');
    if (name.substr(0, slash) == "..") return true;
    if (slash == std::string_view::npos) return false;
    name.remove_prefix(slash + 1);
  }
}

}  // namespace

namespace {

/// Names of the entries for whose mode `is_wanted` is true.
template <typename Wanted>
Result<std::vector<std::string>> list_entries(const std::string& directory, Wanted is_wanted) {
  const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(directory.c_str()));
  if (stream == nullptr) return errno_error(errno, directory, "cannot list the folder");
  std::vector<std::string> names;
  while (true) {
    errno = 0;  // readdir returns null for both the end and a failure
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) {
      return errno_error(errno, directory, "cannot list the folder");
    }
    if (entry == nullptr) break;
    struct stat info = {};
    // Follows symbolic links: download caches keep the files elsewhere and link to them.
    if (::fstatat(::dirfd(stream.get()), entry->d_name, &info, 0) != 0) continue;
    if (is_wanted(info.st_mode)) names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::vector<std::string>> list_files(const std::string& directory) {
  return list_entries(directory, [](mode_t mode) { return S_ISREG(mode); });
}

Result<std::vector<std::string>> list_folders(const std::string& directory) {
  MF_ASSIGN_OR_RETURN(std::vector<std::string> names,
                      list_entries(directory, [](mode_t mode) { return S_ISDIR(mode); }));
  std::erase_if(names, [](const std::string& name) { return name == "." || name == ".."; });
  return names;
}

Result<std::string> join_inside(const std::string& directory, std::string_view name) {
  const auto refuse = [&](std::string_view found) {
    return make_error(ErrorCode::kInvalidArgument,
                      "{}: a file name {}, expected a name inside the folder", directory, found);
  };
  if (name.empty()) return refuse("is empty");
  // Checked first: what is refused below is quoted in the message and must be fit for a terminal.
  for (const char c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return refuse("has a control character");
  }
  if (name.front() == '/') return refuse(formatted("is absolute ('{}')", name));
  if (has_climbing_component(name)) return refuse(formatted("climbs out with '..' ('{}')", name));
  if (directory.empty()) return std::string(name);
  return directory + (directory.back() == '/' ? "" : "/") + std::string(name);
}

}  // namespace moeflux
