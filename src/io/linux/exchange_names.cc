#include "io/exchange_names.h"

#include <fcntl.h>

#include <cerrno>

namespace moeflux {

int exchange_names(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0 ? 0 : errno;
}

}  // namespace moeflux
