// Names of the folders in a folder.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace moeflux {

/// Names (not paths) of the folders in a folder, sorted, without "." and "..". Follows symbolic
/// links.
Result<std::vector<std::string>> list_folders(const std::string& directory);

}  // namespace moeflux
