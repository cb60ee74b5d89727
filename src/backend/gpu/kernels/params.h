// Parameter structs of kernels. Plain data of fixed layout: the encoder fills them in, every
// dialect reads them as they are.
#pragma once

#include "backend/gpu/dialect/types.h"

namespace moeflux {
namespace gpu {

/// Rows of a tensor of any rank: extents and strides (in elements) of its three outer dimensions,
/// right-aligned.
struct RowsLayout {
  u64 strides[3];
  u32 extents[3];
  u32 cols;
};

/// Element-wise kernels over rows * cols elements, and rms_norm.
struct RowsParams {
  RowsLayout out;
  RowsLayout a;
  RowsLayout b;  // with one column: one element a row
  u32 rows;
  u32 cols;
  u32 activation;  // 0 silu, 1 sigmoid, 2 gelu_tanh
  u32 has_weight;  // rms_norm
  u32 has_gate;    // rms_norm_narrow: times activation(b)
  u32 wide;        // all rows begin on 16-byte boundaries and are multiples of them
  u32 simd_rows;   // rms_norm_narrow
  f32 factor;      // scale, cap, epsilon, or alpha of a gated unit
  f32 limit;
  f32 up_offset;
};

/// rms_norm of a sum: of slots of experts or a base, and up to two addends.
enum : u32 {
  kNormNarrowCols = 1024,   // rows up to here are summed over by 32 threads,
  kNarrowRows = 4,          // which have so many of many,
  kNormThreads = 256,       // longer ones by 256
  kNormMiddleCols = 4096,   // up to here,
  kNormLongThreads = 1024,  // and others by 1024
  kChainVectorsMax = 8,     // of four columns a thread
  kChainVectorsShort = 2,   // of many tokens
  kChainLongVectors = 2,
};

/// Few rows of plain numbers take a row of up to kFewColsMax columns, by groups of kNormThreads. A
/// norm that they make by themselves: as many SIMD groups sum over a long row elsewhere, and a
/// thread here does the part of so many threads there.
enum : u32 {
  kNormLongSimds = kNormLongThreads / 32,
  kNormShares = kNormLongThreads / kNormThreads,
  kFewVectors = 8,  // of four columns a thread
  kFewColsMax = kFewVectors * 4 * kNormThreads,
};
struct ChainParams {
  u32 cols;
  u32 top_k;  // 0: begins with the base
  u32 adds;
  f32 epsilon;
};

struct RopeParams {
  u64 token_stride;
  u64 head_stride;
  u32 tokens;
  u32 heads;
  u32 half;  // rotary_dim / 2
  u32 interleaved;
  f32 factor;
};

/// How numbers are stored. Affine formats are their bits.
enum : u32 { kFormatF16 = 16, kFormatBf16 = 17, kFormatF32 = 32 };

/// A row-major matrix in its storage format.
struct MatrixLayout {
  u32 rows;
  u32 cols;
  u32 format;
  u32 group_shift;  // log2 of the affine group
  u32 scales;       // format of scales and biases
  u32 wide;         // rows begin on 16-byte boundaries
};

struct EmbedParams {
  MatrixLayout table;
  RowsLayout out;
  u32 tokens;
};

/// Activations per token and per head, in elements.
struct HeadsLayout {
  u64 token_stride;
  u64 head_stride;
};

/// Rows that a SIMD group multiplies at once: one for single tokens, where many groups hide
/// latency; several for tiles of tokens, which they share.
enum : u32 {
  kRowsOfOneToken = 1,
  kRowsOfTile = 4,
  kGateUpRowsOfOneToken = 1,
  kGateUpRowsOfTile = 2,
};

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

/// Few rows of plain numbers times one token, which may be made on the way: the norm of a sum.
struct FewRowsParams {
  MatrixLayout weight;
  u32 group_rows;  // up to kNormThreads / 32
  u32 adds;
  f32 epsilon;
};

/// Rows of a head in head_linear_transposed are summed over in parts of so many, then the parts in
/// order: what a product's bits depend on.
enum : u32 { kHeadPartRows = 8, kHeadStageRows = 128 };

/// Queries, keys or values on their way to attention.
struct HeadsPart {
  HeadsLayout x;
  HeadsLayout page;  // strides within a page; queries have none
  u32 heads;         // 0: nothing to do
  u32 cols;
  u32 has_norm;
  u32 has_weight;
  u32 half;  // of the columns that turn; 0: none do
  u32 wide;  // rows begin on 16-byte boundaries and are multiples of them
  f32 epsilon;
};
struct WriteHeadsParams {
  HeadsPart parts[3];
  u32 page_tokens;
  u32 num_pages;
  u32 begin;       // position of the first token
  u32 stage_cols;  // of the widest head
  u32 interleaved;
  u32 early;  // the kernel before does not write the positions
  f32 factor;
};

/// Keys are summed over in tiles, and tiles in splits, that begin at multiples of these positions:
/// what a query's bits depend on.
enum : u32 { kAttentionTile = 128, kAttentionSplit = 512, kAttentionColumnsMax = 5 };
/// The same on matrix units, where a tile is a part of its own. Keys have up to so many steps of 16
/// columns, values so many blocks of 32.
enum : u32 {
  kTileKeys = 64,
  kTileSteps = 16,
  kTileBlocks = 8,
  kTileFewRows = 16,
  kTileValueWords = kTileBlocks * 32 + 4,  // from one row of values to the next, if it is full
  kTileScoreWords = kTileKeys + 4,         // from one row of scores to the next
};
/// Of wider rows, which are summed over in splits.
/// The first splits have largest scores and sums for each tile, which are merged; the others carry
/// them from tile to tile, which takes less time where a group has them all.
enum : u32 { kWideKeys = 32, kWideSplit = 256, kWideTiledSplits = 4, kWideFewRows = 8 };
/// Parts that are merged at once, by a thread each, and that a lane takes up at once; columns of a
/// group, and where they lie in shared memory, in words.
enum : u32 {
  kMergeParts = 256,
  kMergeStep = 16,
  kMergeColumns = kMergeParts / kMergeStep,
  kMergeColumnsAt = 3 * kMergeParts + kMergeParts / 32,
  kMergeColumnWords = kMergeParts + 4,
  kMergeWords = kMergeColumnsAt + kMergeColumns * kMergeColumnWords,
};

struct AttentionParams {
  HeadsLayout q;
  HeadsLayout out;
  HeadsLayout gate;
  HeadsLayout k_page;
  HeadsLayout v_page;
  u32 tokens;
  u32 heads;
  u32 heads_per_kv_head;
  u32 head_dim;
  u32 v_head_dim;
  u32 page_tokens;
  u32 num_pages;
  u32 begin;   // position of the first query
  u32 window;  // 0: everything
  u32 has_sinks;
  u32 has_gate;       // times its sigmoid
  u32 walks;          // a group has all parts of its queries; otherwise attention_merge follows
  u32 first_part;     // that any query sees
  u32 num_parts;      // from there on
  u32 partial_words;  // from the columns of one part to those of the next
  f32 scale;          // of scores, which are exponents of 2
  f32 column_factor;  // of finished sums
  // On matrix units.
  u32 group_parts;   // of a group of many rows that does not walk
  u32 resumes;       // launches for earlier tiles came before
  u32 finishes;      // none for later ones follow
  u32 key_steps;     // of 16 columns
  u32 value_blocks;  // of 32 columns
  u32 key_words;     // of shared memory from one row of keys to the next
  u32 value_words;   // and of values
  u32 first_key;     // that any query sees
  u32 shares_rows;   // a position's value is the first part of its key
  u32 split_parts;   // that are merged to a split before splits are merged; 0: parts are splits
};

/// Which rows of a quantised matrix are a head's.
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
/// a few columns, or all columns of a few rows. Where things lie in shared memory, in words: codes,
/// a scale and a bias for each row and group of columns, and behind them what the matrix is
/// multiplied by and what becomes of it; before that, the halves of scales and biases.
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
  u32 rank;         // columns of a latent before those that turn
  u32 nope;         // columns of q before them
  u32 heads;
  u32 page_tokens;
  u32 num_pages;
  u32 begin;  // position of the first token
  u32 half;   // of the turned columns
  u32 interleaved;
  u32 wide_latent;  // latents, their pages and the norm begin on 16-byte boundaries
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

enum : u32 { kConvTokens = 8, kConvTapsHeld = 4 };
enum : u32 { kConvOneTapsMax = 4 };  // of the kernels for a single token
struct ConvParams {
  u64 x_stride;
  u64 out_stride;
  u32 tokens;
  u32 channels;
  u32 taps;
  u32 wide;  // causal_conv_rows: few taps, four channels a thread, which begin on 16-byte
             // boundaries
};

/// The delta rule of many tokens: 32 columns of a head's state a group, in SIMD groups that have a
/// few of them and leave tokens to others, which bring kDeltaTokenUnits / (units of 32 rows of
/// keys) of them at a time. What is summed over rows of the state is summed over parts of them
/// first.
enum : u32 {
  kDeltaTokenUnits = 64,
  kDeltaColumns = 32,
  kDeltaParts = 16,
  kDeltaLaneColumns = 4,
  kDeltaSimds = kDeltaColumns * kDeltaParts / (32 * kDeltaLaneColumns),
  kDeltaStagers = 4,
  kDeltaStageUnits = 16,  // tokens that each of these brings at a time, by units of 32 rows of keys
  kDeltaBlockMin = 4,     // tokens that all bring, where shared memory is small
  kDeltaThreads = (kDeltaSimds + kDeltaStagers) * 32,
  // What a token has in shared memory besides its key and its query, in words: values, deltas,
  // results in kDeltaOutParts parts, which begin on different banks, and DeltaScalars.
  kDeltaOutParts = kDeltaParts / kDeltaLaneColumns,
  kDeltaOutPart = kDeltaColumns + 2 * kDeltaLaneColumns,
  kDeltaTokenWords = 2 * kDeltaColumns + kDeltaOutParts * kDeltaOutPart + 8,
};

struct DeltaParams {
  u64 qkv_stride;
  u64 a_stride;
  u64 b_stride;
  HeadsLayout out;
  u32 tokens;
  u32 key_heads;
  u32 value_heads;
  u32 key_dim;
  u32 value_dim;
  u32 wide;          // queries, keys and values begin on 16-byte boundaries
  u32 block_tokens;  // that are brought at a time
  f32 query_factor;  // 1 / sqrt(key_dim)
};

/// One token, whose heads may go on through a norm, which SiLU of a gate may follow.
enum : u32 {
  kDeltaOneThreads = 512,
  kDeltaOneDim = 128,  // of keys and of values
  kDeltaOneSimds = kDeltaOneThreads / 32,
  // Where things lie in shared memory, in words: the rows; what SIMD groups have of every column's
  // sums; these sums; decay, beta and match.
  kDeltaOneQuery = 0,
  kDeltaOneKey = kDeltaOneQuery + kDeltaOneDim,
  kDeltaOneRecalls = kDeltaOneKey + kDeltaOneDim,
  kDeltaOneSums = kDeltaOneRecalls + kDeltaOneSimds * kDeltaOneDim,
  kDeltaOneDeltas = kDeltaOneSums + kDeltaOneSimds * kDeltaOneDim,
  kDeltaOneOuts = kDeltaOneDeltas + kDeltaOneDim,
  kDeltaOneScalars = kDeltaOneOuts + kDeltaOneDim,
  kDeltaOneWords = kDeltaOneScalars + 3,
};
struct DeltaOneParams {
  u64 gate_head_stride;
  u64 out_head_stride;
  u32 key_heads;
  u32 heads_per_key;
  u32 has_norm;
  u32 has_gate;
  u32 early;  // the kernel before does not write the state
  f32 query_factor;
  f32 epsilon;
};

/// What a group of threads judges in registers: that many experts and ranks at most, through so
/// many shared words. Groups of experts there are a SIMD group's each.
enum : u32 {
  kRouteThreads = 256,
  kRouteSimds = 4,  // of many tokens in a group, which have a SIMD group each
  kRouteExpertsMax = 2 * kRouteThreads,
  kRouteRanksMax = 16,
  kRouteGroupExperts = 32,
  kRouteJudges = kRouteThreads / 32,           // SIMD groups, each with its experts
  kRouteIds = kRouteJudges * kRouteRanksMax,   // where they begin, after their orders
  kRouteGroups = 2 * kRouteIds,                // and the groups' scores
  kRouteChosen = kRouteGroups + kRouteJudges,  // and the ids of the best
  kRouteKeys = kRouteChosen + kRouteRanksMax,  // and the orders of all experts
  kRouteWords = kRouteKeys + kRouteExpertsMax,
};

struct RouteParams {
  u64 logits_stride;
  u32 tokens;
  u32 experts;
  u32 top_k;
  u32 sigmoid;
  u32 num_groups;
  u32 groups_kept;
  u32 top_two;  // a group's score is the sum of its two best
  u32 normalize;
  u32 has_correction;
  u32 has_expert_scale;
  u32 thread_experts;  // 1 or 2 in groups of 256; 0: a SIMD group, through shared memory
  f32 normalize_epsilon;
  f32 scale;
};

/// The best of each piece of a row, of 16 values a lane.
enum : u32 { kTopLane = 16, kTopPiece = 32 * kTopLane };
struct TopParams {
  u64 stride;  // from row to row, of values and their ids
  u64 out_stride;
  u32 cols;
  u32 k;
  u32 has_ids;  // values are what an earlier launch found; otherwise their places are their ids
};

/// In the upper half of a word that is there, and of no other.
enum : u32 { kReadOutMark = 1 };
struct ReadOutParams {
  u32 bytes;
};

/// Device addresses of one matrix and of what is added to its products (0: nothing).
struct ExpertMatrix {
  u64 data;
  u64 scales;
  u64 biases;
  u64 bias;
};
/// One ready expert, as it lies in a table in device memory.
struct ExpertEntry {
  ExpertMatrix gate;
  ExpertMatrix up;
  ExpertMatrix down;
};
/// In the map from expert ids to entries: not ready.
enum : u32 { kNoEntry = 0xffffffffu };

struct ExpertListParams {
  u32 slots;
  u32 ids;  // of the map; ids beyond are not ready
  u32 entries;
  u32 tile;  // slots in one tile
};

struct ExpertParams {
  MatrixLayout gate;  // the matrix, for a single product
  MatrixLayout up;
  u64 x_stride;
  u64 out_stride;
  u32 slots;
  u32 ids;
  u32 top_k;      // slots per row of x
  u32 use_tiles;  // slots come from tiles; otherwise group y is the slot
  u32 stage_cols;
  u32 wide;  // rows of x begin on 16-byte boundaries
  u32 bias_format;
  u32 activation;
  f32 alpha;
  f32 limit;
  f32 up_offset;
};

struct CombineParams {
  u64 slot_stride;
  u64 out_stride;
  u32 tokens;
  u32 top_k;
  u32 cols;
};

}  // namespace gpu
}  // namespace moeflux
