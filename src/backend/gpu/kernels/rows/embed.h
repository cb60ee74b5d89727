// Rows of a table, decoded.
#pragma once

#include "backend/gpu/kernels/matmul/weights.h"
#include "backend/gpu/kernels/rows/elements.h"
#include "backend/gpu/kernels/rows/params.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// A thread an element: group y is the token.
MF_KERNEL(embed_rows, EmbedParams, MF_CONST(0, u8, data), MF_CONST(1, u8, scales),
          MF_CONST(2, u8, biases), MF_READ(3, i32, ids), MF_WRITE(4, f32, out)) {
  MF_THREAD;
  const u32 col = t.group.x * t.threads + t.index;
  if (col >= p.table.cols) return;
  const u32 token = t.group.y;
  const u64 row = static_cast<u64>(ids[token]);
  out[row_at(p.out, token) + col] = decode_at(p.table, data, scales, biases, row, col);
}

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
