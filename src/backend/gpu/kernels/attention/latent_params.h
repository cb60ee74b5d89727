// Latent attention around attention itself.
#pragma once

#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// The rows of a quantised matrix that belong to a head.
struct HeadMatrix {
  MatrixLayout weight;  // wide
  u32 head_stride;
  u32 row_begin;
  u32 rows_per_head;
  u32 lane_shift;  // log2 of the lanes of a row, where each has a pack of 32 columns
};

/// Latent attention of single tokens: columns and rows of a group, and how many a thread has.
enum : u32 {
  kLatentThreads = 256,
  kLatentColumns = 128,
  kLatentRowsHeld = 4,
  kLatentColumnsHeld = 2,
  kLatentTurnsHeld = 5,  // heads that a SIMD group turns at once: of 128, a 30th
  kLatentRankMax = 512,
};
/// The same for heads of 128 rows of 512 columns of 4 bits in groups of 64: a group has all rows of
/// a few columns, or all columns of a few rows. Offsets in shared memory are in words. Codes come
/// first, then a scale and a bias for each row and group of columns, then sums and activations.
/// Halves of scales and biases arrive where sums or activations lie later.
enum : u32 {
  kLatentOneCols = 512,
  kLatentOneRows = 128,
  kLatentOneQueryThreads = 128,
  kLatentOneQueryCols = 128,
  kLatentOneOctets = kLatentOneQueryCols / 8,
  kLatentOneParts = kLatentOneRows / 8,  // of kHeadPartRows
  kLatentOneQueryFactors = kLatentOneRows * kLatentOneOctets,
  kLatentOneQuerySums = kLatentOneQueryFactors + kLatentOneRows * kLatentOneQueryCols / 64 * 2,
  kLatentOneQueryStaged = kLatentOneQuerySums + kLatentOneParts * kLatentOneQueryCols,
  kLatentOneQueryWords = kLatentOneQueryStaged + kLatentOneRows,
  kLatentOneValueThreads = 256,
  kLatentOneValueRows = 64,
  kLatentOneLanes = kLatentOneCols / 32,  // of a row
  kLatentOneRowsAtOnce = kLatentOneValueThreads / kLatentOneLanes,
  kLatentOneValueFactors = kLatentOneValueRows * kLatentOneCols / 8,
  kLatentOneValueStaged = kLatentOneValueFactors + kLatentOneValueRows * kLatentOneCols / 64 * 2,
  kLatentOneValueWords = kLatentOneValueStaged + kLatentOneCols,
};
struct LatentQueriesParams {
  HeadMatrix up;      // of keys; its columns are the latent's
  HeadsLayout q;      // a head's part without positions, then the turned one
  HeadsLayout query;  // over the latent, then the turned part
  u64 latent_stride;
  u64 page_stride;  // from token to token
  u64 lengths;      // as WriteHeadsParams has it, with `pages` as k_pages
  u32 rank;         // columns of a latent before those that turn
  u32 nope;         // columns of q before them
  u32 heads;
  u32 page_tokens;
  u32 num_pages;
  u32 begin;  // position of the first token
  u32 half;   // of the turned columns
  u32 interleaved;
  u32 wide_latent;  // latents, their pages and the norm begin on 16-byte boundaries
  u32 f16;          // pages are
  u32 groups;       // of a head
  u32 early;        // the kernel before writes neither positions nor pages
  f32 factor;
  f32 epsilon;
};
struct LatentValuesParams {
  AttentionParams attention;
  HeadMatrix up;  // of values
  HeadsLayout out;
};

}  // namespace gpu
}  // namespace moeflux
