// Rows that are brought, and the largest of a row.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

struct EmbedParams {
  MatrixLayout table;
  RowsLayout out;
  u32 tokens;
};

/// The best of each piece of a row, of 16 values a lane.
enum : u32 { kTopLane = 16, kTopPiece = 32 * kTopLane, kTopFound = 3 };
struct TopParams {
  u64 stride;  // from row to row, of values and their ids
  u64 out_stride;
  u32 cols;
  u32 k;
  u32 has_ids;     // values are what an earlier launch found; otherwise their places are their ids
  u32 mask_words;  // of a row; 0: no mask
};

/// Streams of a residual, so that a SIMD group has all of a matrix of them.
enum : u32 { kExpandStreamsMax = 5 };
struct StreamGateParams {
  u32 streams;
  u32 cols;
  u32 iterations;
  u32 makes_gates;  // of writing too
  u32 mixes;        // and of mixing
  u32 wide;         // four columns a thread, which begin on 16-byte boundaries
  f32 epsilon;
  f32 magnitude;
  f32 write_epsilon;
};
struct ExpandParams {
  u32 tokens;
  u32 streams;
  u32 cols;
  u32 mixes;
  u32 from_logits;
  u32 wide;  // four columns a thread, which begin on 16-byte boundaries
  u64 branch_stride;
};

struct SumGatedParams {
  u32 streams;
  u32 cols;
  u32 wide;  // four columns a thread, which begin on 16-byte boundaries
};
struct RootDotParams {
  u32 cols;
  f32 scale;
  f32 least;
  u32 wide;  // rows begin on 16-byte boundaries and are multiples of them
};
/// The most states that a token attends to.
enum : u32 { kMixStatesMax = 32 };

struct MixBlocksParams {
  u32 states;  // blocks and one more
  u32 tokens;
  u32 cols;
  u32 sums_normed;
  u32 wide;  // rows begin on 16-byte boundaries and are multiples of them
  f32 scale;
  f32 epsilon;
};
struct ClipRowsParams {
  u32 rows;
  u32 cols;
  f32 longest;
  f32 added;  // to a row's length
};
struct RoundBlocksParams {
  RowsParams x;
  u32 format;
  u32 block;
};

/// In the upper half of a word that is there, and of no other.
enum : u32 { kReadOutMark = 1 };
struct ReadOutParams {
  u32 bytes;
};

}  // namespace gpu
}  // namespace moeflux
