// Rows of norms, and of sums that end in one.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// rms_norm of a sum: of slots of experts or a base, and up to two addends.
enum : u32 {
  kNormNarrowCols = 1024,   // rows of at most as many columns are summed by 32 threads
  kNarrowRows = 4,          // of one group of threads when there are many rows
  kNormThreads = 256,       // for rows of at most kNormMiddleCols columns
  kNormMiddleCols = 4096,   // see kNormThreads
  kNormLongThreads = 1024,  // for longer rows
  kNormHeldVectors = 4,     // of four columns, which a thread keeps between sum and result
  kChainVectorsMax = 8,     // of four columns, per thread
  kChainVectorsShort = 2,   // of many tokens
  kChainLongVectors = 2,
};

/// A norm that products make by themselves. In a launch of its own, kNormLongSimds SIMD groups sum
/// over a long row; here a thread does the part of kNormShares of their threads.
enum : u32 {
  kNormLongSimds = kNormLongThreads / 32,
  kNormShares = kNormLongThreads / kNormThreads,
};

struct ChainParams {
  u32 cols;
  u32 top_k;  // 0: begins with the base
  u32 adds;
  f32 epsilon;
  u32 order;  // of the norm's bytes as integers (matmul/mma_params.h), kRowsNone: there are none
};

}  // namespace gpu
}  // namespace moeflux
