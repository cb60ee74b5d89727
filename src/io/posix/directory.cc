// Folders: what is in them, and names that must stay inside them.
#include <sys/stat.h>

#include <algorithm>

#include "io/file.h"
#include "io/folder_list.h"
#include "io/posix/folder_entries.h"

namespace moeflux {
namespace {

bool has_climbing_component(std::string_view name) {
  while (true) {
    const size_t slash = name.find('/');
    if (name.substr(0, slash) == "..") return true;
    if (slash == std::string_view::npos) return false;
    name.remove_prefix(slash + 1);
  }
}

/// Names of the entries for whose mode `is_wanted` is true.
template <typename Wanted>
Result<std::vector<std::string>> list_entries(const std::string& directory, Wanted is_wanted) {
  std::vector<std::string> names;
  MF_RETURN_IF_ERROR(visit_entries(directory, [&](int folder, const char* name) {
    struct stat info = {};
    // Follows symbolic links: download caches keep the files elsewhere and link to them.
    if (::fstatat(folder, name, &info, 0) == 0 && is_wanted(info.st_mode)) names.emplace_back(name);
  }));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Result<std::vector<std::string>> list_files(const std::string& directory) {
  return list_entries(directory, [](mode_t mode) { return S_ISREG(mode); });
}

Result<std::vector<std::string>> list_folders(const std::string& directory) {
  return list_entries(directory, [](mode_t mode) { return S_ISDIR(mode); });
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
