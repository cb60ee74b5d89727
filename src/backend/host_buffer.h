// Memory in the host's address space, and the scratch arena over it: what backends that compute on
// the host share.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/numa.h"
#include "base/result.h"
#include "tensor/tensor.h"

namespace moeflux {

/// Zeroed, page-aligned, faulted in lazily. A large one's pages lie on `nodes` in turn, where the
/// system lets them. Fails with kResourceExhausted.
Result<std::unique_ptr<Buffer>> allocate_host_buffer(size_t bytes,
                                                     std::span<const NumaNode> nodes = {});

/// Nobody needs the bytes of a range any more: the pages inside it go back to the system and may
/// read as zeros. They stay usable. False, and nothing happens, for a buffer that is not of
/// allocate_host_buffer().
bool discard_host_memory(Buffer& buffer, size_t offset_bytes, size_t bytes);

/// A stack of 64-byte aligned tensors in one buffer: Encoder::scratch() of every backend. So the
/// measure of a dry run is exact.
class ScratchArena {
 public:
  explicit ScratchArena(std::unique_ptr<Buffer> buffer) : buffer_(std::move(buffer)) {}
  static Result<ScratchArena> create(size_t bytes);

  /// Aborts when the arena is full: its size was measured by the dry run, so that is a bug.
  Tensor take(const Shape& shape, DType dtype);
  size_t mark() const { return used_; }
  void release(size_t mark) { used_ = mark; }
  /// The most bytes that were taken at a time.
  size_t bytes_max() const { return max_; }
  Buffer& buffer() const { return *buffer_; }

 private:
  std::unique_ptr<Buffer> buffer_;
  size_t used_ = 0;
  size_t max_ = 0;
};

}  // namespace moeflux
