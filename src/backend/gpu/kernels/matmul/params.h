// Products of rows with matrices in any storage format.
#pragma once

#include "backend/gpu/kernels/norm/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// Rows that a SIMD group multiplies at once: one for single tokens, where many groups hide
/// latency; several for tiles of tokens, which they share.
enum : u32 {
  kRowsOfOneToken = 1,
  kRowsOfTile = 4,
  kGateUpRowsOfOneToken = 1,
  kGateUpRowsOfTile = 2,
};

/// Large tiles: tokens, rows of a SIMD group, columns of a stage.
enum : u32 {
  kLargeTileTokens = 16,
  kLargeTileRows = 8,
  kLargeTileThreads = 256,
  kLargeTileCols = 256,
  kLargeTileStages = 2,
  kLargeTileCopies = kLargeTileTokens * kLargeTileCols / 4 / kLargeTileThreads,
};

/// Threads of a group of the products of single tokens, at most: registers must do for so many.
enum : u32 { kLinearThreadsMax = 512 };

/// linear, head_linear and its transpose; linear is one head that owns all rows.
struct LinearParams {
  MatrixLayout weight;
  HeadsLayout x;
  HeadsLayout out;
  u32 tokens;
  u32 heads;
  u32 head_stride;  // rows from one head to the next
  u32 row_begin;
  u32 rows_per_head;
  u32 stage_cols;  // columns of x in shared memory at a time, a multiple of 32
  u32 wide;        // rows of x begin on 16-byte boundaries
};

/// Few rows of plain numbers take a row by groups of kNormThreads, which hold so much of it at
/// once.
enum : u32 {
  kFewVectors = 8,  // of four columns a thread
  kFewColsMax = kFewVectors * 4 * kNormThreads,
};

/// Few rows of plain numbers times one token, which may be made on the way: the norm of a sum.
struct FewRowsParams {
  MatrixLayout weight;
  u32 group_rows;  // up to kNormThreads / 32
  u32 staged;      // rows go to shared memory
  u32 adds;
  u32 weights;  // the norm has some
  u32 has_bias;
  f32 epsilon;
};

/// Rows of a head in head_linear_transposed are summed over in parts of so many, then the parts in
/// order: what a product's bits depend on.
enum : u32 { kHeadPartRows = 8, kHeadStageRows = 128 };

/// Rows of heads, number by number: UnpackParams. A group of kUnpackThreads has so many octets.
enum : u32 { kUnpackThreads = 256 };
struct UnpackParams {
  MatrixLayout weight;  // columns are a multiple of 8
  u64 out_head;         // numbers from a head to the next
  u32 head_stride;      // rows from one head to the next
  u32 row_begin;
  u32 rows_per_head;
  u32 row_stride;  // numbers from a row to the next
  u32 col_stride;  // from a column to the next; one of the two is 1
};

/// Products of heads whose matrices were unpacked, k by k: tiles of tokens and of columns, columns
/// of a k in memory, and stages of eight k that are under way.
enum : u32 {
  kHeadTileThreads = 128,
  kHeadTileGroups = 2,  // of a multiprocessor at once
  kHeadTileTokens = 64,
  kHeadTileCols = 128,
  kHeadTileSums = kHeadTileTokens * kHeadTileCols / kHeadTileThreads,
  kHeadTileCopyRows = kHeadTileThreads * 4 / kHeadTileCols,  // of which all threads copy four words
  kHeadTileMatrixCopies = kHeadPartRows / kHeadTileCopyRows,
  kHeadTileCopyTokens = kHeadTileThreads / kHeadPartRows,  // of which all threads copy a word
  kHeadTileCopies = kHeadTileTokens / kHeadTileCopyTokens,
  kHeadTileLevels = 3,  // of fours of lanes that wait for each other
  kHeadTileLevelWords = kHeadTileTokens * kHeadTileCols,
  kHeadTileStages = 4,
  kHeadTileTokenRow = kHeadTileTokens + 4,  // so that copies of four tokens meet all banks
  kHeadTileStageWords = kHeadPartRows * (kHeadTileCols + kHeadTileTokenRow),
};
struct HeadTileParams {
  HeadsLayout x;
  HeadsLayout out;
  u64 matrix_head;  // numbers from a head's matrix to the next
  u32 row_stride;   // numbers of a k, a multiple of 4
  u32 depth;        // k, a multiple of kHeadPartRows
  u32 cols;
  u32 tokens;
  u32 wide;           // rows of out begin on 16-byte boundaries and have a multiple of four columns
  u32 shared_levels;  // of kHeadTileLevels in shared memory; head_tile_lanes alone
};

}  // namespace gpu
}  // namespace moeflux
