// Making a folder's entries durable: what a rename needs after it.
#pragma once

#include <fcntl.h>

#include <string>

#include "io/posix/errno_text.h"
#include "io/posix/unique_fd.h"

namespace moeflux {

inline Status sync_folder(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) return errno_error(errno, folder, "cannot open the folder to sync it");
  // EINVAL: the file system has no such operation, so there is nothing more to do.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    return errno_error(errno, folder, "cannot sync the folder");
  }
  return {};
}

}  // namespace moeflux
