// What the kernels of small copies are told, and the handles through which the host launches them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moeflux::gpu {

/// Token ids and positions, tables of pages and of the experts of a token; a launch takes longer
/// with more parameters, whether they are used or not.
constexpr size_t kSmallWriteBytes = 1024;
/// Best logits, a token's routes.
constexpr size_t kSmallReadBytes = 4096;
constexpr uint32_t kSmallCopyThreads = 256;

/// small_write: to[i] = byte i of the words. Any alignment.
struct SmallWriteParams {
  std::byte* to;
  uint32_t bytes;
  uint32_t words[kSmallWriteBytes / 4];
};

/// What a small read brings, word by word: the word in the lower half, and in the upper one that it
/// is there. A store of eight bytes is never seen in part, so it needs neither a fence nor an order
/// among words.
constexpr uint64_t kArrived = uint64_t{1} << 32;

/// small_read: to[i] = kArrived and bytes 4 i to 4 i + 3 of `from`, zeros behind the last. Any
/// alignment of `from`.
struct SmallReadParams {
  const std::byte* from;
  uint64_t* to;
  uint32_t bytes;
};

/// Launched as one group of kSmallCopyThreads; the parameters above by value.
const void* small_write_kernel();
const void* small_read_kernel();

}  // namespace moeflux::gpu
