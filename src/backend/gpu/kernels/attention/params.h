// Heads on their way to attention, and attention.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

struct RopeParams {
  u64 token_stride;
  u64 head_stride;
  u32 tokens;
  u32 heads;
  u32 half;  // rotary_dim / 2
  u32 interleaved;
  u32 unit;  // positions are rounded down to multiples of it
  f32 factor;
};

/// Element types of pages: see cached.h.
enum : u32 { kCachedF32, kCachedF16, kCachedQ8 };

/// Queries, keys or values on their way to attention.
struct HeadsPart {
  HeadsLayout x;
  HeadsLayout page;  // strides within a page; queries have none
  u32 heads;         // 0: nothing to do
  u32 cols;
  u32 has_norm;
  u32 has_weight;
  u32 turned;  // the first of the columns that turn
  u32 half;    // of them; 0: none do
  u32 wide;    // rows begin on 16-byte boundaries and are multiples of them
  u32 stored;  // kCachedF32, kCachedF16 or kCachedQ8: what pages hold
  f32 epsilon;
};
/// Where tokens are of several sequences, a token of each, `lengths` is the address of their
/// positions, u64 each. Then k_pages is a table with kSequenceWords words of each of them: the
/// addresses of its tables of pages, of keys and of values, and how many pages there are. Otherwise
/// it is 0.
enum : u32 { kSequenceWords = 3 };

struct WriteHeadsParams {
  HeadsPart parts[3];
  u64 lengths;
  u32 page_tokens;
  u32 num_pages;
  u32 begin;       // position of the first token
  u32 key_tokens;  // positions are those of keys that so many tokens share
  u32 stage_cols;  // of the widest head
  u32 interleaved;
  u32 unit;   // heads turn by the last position that is a multiple of it
  u32 early;  // the kernel before does not write the positions
  f32 factor;
};

/// Keys are summed over in tiles, and tiles in splits. Both begin at multiples of these positions,
/// on which a query's bits depend.
enum : u32 { kAttentionTile = 128, kAttentionSplit = 512, kAttentionColumnsMax = 5 };
/// The same on matrix units, where a tile is a part of its own. Keys have up to so many steps of 16
/// columns, values so many blocks of 32.
enum : u32 {
  kTileKeys = 64,
  kTileSteps = 16,
  kTileBlocks = 8,
  kTileFewRows = 16,
  kTileScoreWords = kTileKeys + 4,       // from one row of scores to the next
  kTeamTileBlockWords = kTileKeys * 32,  // 64 columns of a tile in one half each
};
/// Wider rows are summed over in splits. The first splits keep largest scores and sums for each
/// tile and merge them. The others carry them from tile to tile, which takes less time where one
/// group has all tiles.
enum : u32 {
  kWideKeys = 32,
  kWideSplit = 256,
  kWideTiledSplits = 4,
  kWideFewRows = 8,
  kWideManyRows = 64,
};
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

/// Words of a row that launches leave each other: a largest score and a total, in two places.
enum : u32 { kLeftWords = 4 };

struct AttentionParams {
  HeadsLayout q;
  HeadsLayout out;
  HeadsLayout gate;
  HeadsLayout k_page;
  HeadsLayout v_page;
  u64 lengths;
  u32 tokens;
  u32 heads;
  u32 heads_per_kv_head;
  u32 head_dim;
  u32 v_head_dim;
  u32 v_scales;  // of rows of 8 bits: where those of values begin; those of keys at head_dim
  u32 page_tokens;
  u32 num_pages;
  u32 begin;     // position of the first query
  u32 new_from;  // the launch before has written these positions, beside the queries' own
  u32 window;    // 0: everything
  u32 chunked;   // seen are those from a multiple of `window` on
  u32 has_sinks;
  u32 sink_stride;    // from one token's to the next; 0: the same for all
  u32 bias_extent;    // distances with a number that is added to scores; 0: none
  u32 has_gate;       // times its sigmoid
  u32 walks;          // a group has all parts of its queries; otherwise attention_merge follows
  u32 first_part;     // that any query sees
  u32 num_parts;      // from there on
  u32 partial_words;  // from the columns of one part to those of the next
  f32 scale;          // of scores, which are exponents of 2
  f32 column_factor;  // of finished sums
  // On matrix units.
  u32 group_parts;   // of a group of many rows that does not walk
  u32 resumes;       // so many launches for earlier parts came before
  u32 finishes;      // none for later ones follow
  u32 key_steps;     // of 16 columns
  u32 value_blocks;  // of 32 columns
  u32 key_words;     // of shared memory from one row of keys to the next
  u32 value_words;   // and of values
  u32 first_key;     // that any query sees
  u32 shares_rows;   // a position's value is the first part of its key
  u32 split_parts;   // that are merged to a split before splits are merged; 0: parts are splits
};

}  // namespace gpu
}  // namespace moeflux
