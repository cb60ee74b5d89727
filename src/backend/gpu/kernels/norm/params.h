// Rows of norms, and of sums that end in one.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// rms_norm of a sum: of slots of experts or a base, and up to two addends.
enum : u32 {
  kNormNarrowCols = 1024,   // rows up to here are summed over by 32 threads,
  kNarrowRows = 4,          // which have so many of many,
  kNormThreads = 256,       // longer ones by 256
  kNormMiddleCols = 4096,   // up to here,
  kNormLongThreads = 1024,  // and others by 1024
  kNormHeldVectors = 4,     // of four columns, which a thread keeps between sum and result
  kChainVectorsMax = 8,     // of four columns a thread
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
};

}  // namespace gpu
}  // namespace moeflux
