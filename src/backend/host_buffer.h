// Memory in the host's address space, and the scratch arena over it: what backends that compute on
// the host share.
#pragma once

#include <cstddef>
#include <memory>

#include "base/result.h"
#include "tensor/tensor.h"

namespace moeflux {

/// Zeroed, page-aligned, faulted in lazily. Fails with kResourceExhausted.
Result<std::unique_ptr<Buffer>> allocate_host_buffer(size_t bytes);

/// Nobody needs the bytes of a range any more: the pages inside it go back to the system and may
/// read as zeros. They stay usable. False, and nothing happens, for a buffer that is not of
/// allocate_host_buffer().
bool discard_host_memory(Buffer& buffer, size_t offset_bytes, size_t bytes);

/// A stack of 64-byte aligned tensors in one buffer; Encoder::scratch() of a host backend.
class ScratchArena {
 public:
  static Result<ScratchArena> create(size_t bytes);

  /// Aborts when the arena is full: its size was measured by the dry run, so that is a bug.
  Tensor take(const Shape& shape, DType dtype);
  size_t mark() const { return used_; }
  void release(size_t mark) { used_ = mark; }

 private:
  explicit ScratchArena(std::unique_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}

  std::unique_ptr<Buffer> buffer_;
  size_t used_ = 0;
};

/// Where the next scratch tensor of `bytes` begins and ends in an arena filled up to `used`.
/// The dry run uses the same rule, which is why its measure is exact.
struct ScratchExtent {
  size_t begin = 0;
  size_t end = 0;
};
ScratchExtent next_scratch_extent(size_t used, size_t bytes);

}  // namespace moeflux
