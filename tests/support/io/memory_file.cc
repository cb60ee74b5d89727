#include "tests/support/io/memory_file.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {

Status MemoryFile::read_at(uint64_t offset, std::span<std::byte> into) const {
  if (offset > bytes_.size() || into.size() > bytes_.size() - offset) {
    return make_error(ErrorCode::kIo,
                      "{}: reading {} bytes at offset {} met the end of the file, which has {} "
                      "bytes",
                      path_, into.size(), offset, bytes_.size());
  }
  std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), into.size(), into.begin());
  return {};
}

}  // namespace moeflux
