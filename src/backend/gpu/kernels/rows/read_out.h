// A few bytes for the host, stored where it looks for them.
#pragma once

#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// to[i] = bytes 4 i to 4 i + 3 of `from`, which may lie anywhere, zeros behind the last; and in
/// the upper half, that they are there. One group.
MF_KERNEL(read_out, ReadOutParams, MF_READ(0, u8, from), MF_WRITE(1, u64, to)) {
  MF_THREAD;
  for (u32 i = t.index; i * 4u < p.bytes; i += t.threads) {
    u32 word = 0u;
    MF_UNROLL
    for (u32 b = 0u; b < 4u; ++b) {
      if (i * 4u + b < p.bytes) word |= static_cast<u32>(from[i * 4u + b]) << (8u * b);
    }
    store_whole(to + i, static_cast<u64>(kReadOutMark) << 32u | word);
  }
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
