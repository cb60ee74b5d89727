// Paths as text: nothing here asks the system.
#pragma once

#include <string>
#include <string_view>

namespace moeflux {

/// The folder that holds the entry at `path`; "." where the path names none.
inline std::string folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, slash == 0 ? 1 : slash));
}

/// The part behind the last slash, or all of the path.
inline std::string_view file_name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace moeflux
