// Names of recorded work and of copies beside it, and what work depends on.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace moeflux {

enum class EventId : uint64_t {};
/// Counts up from 1, in the order of copy_beside().
enum class CopyId : uint64_t {};

/// Bytes of one buffer of a device that go into another of it.
struct BufferCopy {
  Buffer* to = nullptr;
  uint64_t to_offset = 0;
  const Buffer* from = nullptr;
  uint64_t from_offset = 0;
  uint64_t bytes = 0;
};

/// Something that recorded work depends on (a pinned expert lease); destroyed once that work has
/// finished.
class Retained {
 public:
  virtual ~Retained() = default;
};

}  // namespace moeflux
