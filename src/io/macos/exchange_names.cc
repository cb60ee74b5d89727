#include "io/exchange_names.h"

#include <cerrno>

namespace moeflux {

int exchange_names(const std::string& a, const std::string& b) {
  return ::renamex_np(a.c_str(), b.c_str(), RENAME_SWAP) == 0 ? 0 : errno;
}

}  // namespace moeflux
