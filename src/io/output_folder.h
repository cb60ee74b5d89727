// A folder that a command fills: made when absent, looked at before anything in it is replaced.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace moeflux {

/// Makes the folder unless it exists. Its parent must exist; a file of that name is
/// kInvalidArgument.
Status create_folder(const std::string& path);
/// True when the folder has no entries of any kind. Fails with kNotFound or kIo.
Result<bool> is_empty_folder(const std::string& path);
/// Bytes that an unprivileged process may still write to the file system of `path`, which exists.
Result<uint64_t> free_disk_bytes(const std::string& path);
/// Removes a file; one that is absent already is no error.
Status remove_file(const std::string& path);

}  // namespace moeflux
