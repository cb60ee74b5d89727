// The entries of a folder, one by one.
#pragma once

#include <dirent.h>

#include <memory>
#include <string>
#include <string_view>

#include "io/posix/errno_text.h"

namespace moeflux {

/// visit(descriptor of the folder, name) for everything in it but "." and "..".
template <typename Visit>
Status visit_entries(const std::string& folder, const Visit& visit) {
  struct Close {
    void operator()(DIR* stream) const { ::closedir(stream); }
  };
  const std::unique_ptr<DIR, Close> stream(::opendir(folder.c_str()));
  if (stream == nullptr) return errno_error(errno, folder, "cannot list the folder");
  while (true) {
    errno = 0;  // readdir returns null for both the end and a failure
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) return errno_error(errno, folder, "cannot list the folder");
    if (entry == nullptr) return {};
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(::dirfd(stream.get()), entry->d_name);
  }
}

}  // namespace moeflux
