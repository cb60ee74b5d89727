// Compiled instead of uring_reader.cc where liburing was not found.
#include "base/format.h"
#include "io/uring/uring_reader.h"

namespace moeflux {

Result<std::unique_ptr<AsyncReader>> make_uring_reader(const UringReaderOptions&) {
  return make_error(ErrorCode::kUnsupported, "built without liburing, expected a direct reader");
}

}  // namespace moeflux
