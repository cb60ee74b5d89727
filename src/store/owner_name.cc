#include "store/owner_name.h"

#include "base/format.h"
#include "checkpoint/checksum.h"

namespace moeflux {

// The checksum of a few bytes alone could be turned round.
std::string owner_name(std::string_view secret) {
  return checksum_text(checksum64(formatted("what is kept for the owner of the key {}", secret)));
}

}  // namespace moeflux
