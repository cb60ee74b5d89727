// A stretch of a text.
#pragma once

#include <cstddef>

namespace moeflux {

/// Bytes [begin, end).
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

}  // namespace moeflux
