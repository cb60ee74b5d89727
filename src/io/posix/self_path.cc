#include "io/self_path.h"

#include <filesystem>
#include <system_error>
#if defined(__APPLE__)
#include <mach-o/dyld.h>

#include <array>
#endif

namespace moeflux {

std::string executable_directory() {
  std::error_code error;
#if defined(__APPLE__)
  std::array<char, 4096> name{};
  uint32_t size = name.size();
  if (_NSGetExecutablePath(name.data(), &size) != 0) return {};
  const std::filesystem::path path = std::filesystem::canonical(name.data(), error);
#else
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
#endif
  return error ? std::string() : path.parent_path().string();
}

}  // namespace moeflux
