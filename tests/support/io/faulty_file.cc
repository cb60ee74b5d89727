#include "tests/support/io/faulty_file.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {

Status FaultyFile::read_at(uint64_t offset, std::span<std::byte> into) const {
  uint64_t bad_at = UINT64_MAX;
  {
    const std::lock_guard lock(mutex_);
    for (FaultyRange& range : ranges_) {
      const bool touched = offset < range.end && range.begin < offset + into.size();
      if (!touched || range.failures_max == 0) continue;
      --range.failures_max;
      bad_at = std::min(bad_at, std::max(offset, range.begin));
    }
  }
  if (bad_at == UINT64_MAX) return inner_->read_at(offset, into);
  MF_RETURN_IF_ERROR(inner_->read_at(offset, into.first(bad_at - offset)));
  return make_error(ErrorCode::kIo, "{}: reading {} bytes at offset {} failed: injected at {}",
                    path(), into.size(), offset, bad_at);
}

}  // namespace moeflux
