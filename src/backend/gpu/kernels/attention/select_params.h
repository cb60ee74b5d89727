// The choice of keys, and the keys and values that were chosen.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

/// Keys of a group of threads, where candidates are tokens; heads that are multiplied at once.
enum : u32 { kIndexThreads = 128, kIndexHeads = 16, kIndexSpanMax = 1024 };

struct IndexScoresParams {
  HeadsLayout q;
  u64 weight_stride;  // between tokens
  u64 page_stride;    // between keys of a page, in elements
  u64 score_stride;   // between groups of a token
  u64 lengths;        // as AttentionParams has it
  u32 tokens;
  u32 heads;  // of a group
  u32 groups;
  u32 head_dim;
  u32 stage_cols;  // head_dim rounded up to a multiple of 4
  u32 key_steps;   // of 16 columns, on matrix units
  u32 page_keys;
  u32 num_pages;
  u32 begin;       // position of the first token
  u32 dense_end;   // tokens before it choose nothing
  u32 key_tokens;  // a token sees the keys of all that many tokens up to its own
  u32 unit;        // keys of a candidate
  u32 span;        // keys of a group of threads: whole candidates, at most kIndexSpanMax
  u32 has_weights;
  u32 relu;  // without weights, the greater of a dot and 0 counts
  u32 wide;  // rows of keys begin on 16-byte boundaries and are multiples of them
};

struct ChooseParams {
  u64 score_stride;  // between groups of a token
  u64 lengths;       // as AttentionParams has it
  u32 groups;
  u32 begin;      // position of the first token
  u32 dense_end;  // tokens before it choose nothing
  u32 whole;      // 1: a whole unit that ends with the token counts
  u32 unit;
  u32 last;  // 1: behind those of whole units a token has one more
  u32 most;
  u32 recent;
};
/// Candidates of the tokens that an earlier choice over larger ones has left.
struct MaskParams {
  ChooseParams choice;
  u32 dense_end;   // tokens before it made no earlier choice
  u32 outer_unit;  // candidates of a larger one
  u32 outer_most;
};

/// Rows of pools: a thread a column of out, and `group_tokens` tokens.
struct PoolParams {
  u32 tokens;
  u32 cols;  // of x
  u32 out_cols;
  u32 unit;
  u32 weighs;
  u32 kept;          // positions are kept modulo it: unit, or twice as many where pools overlap
  u32 group_tokens;  // at least kept - 1
  u32 has_states;    // a token of each of several sequences, whose states are by address
};

/// `lengths` as WriteHeadsParams has it.
struct GatherParams {
  u64 lengths;
  u64 k_token_bytes;  // of pages, between tokens
  u64 k_head_bytes;
  u64 v_token_bytes;
  u64 v_head_bytes;
  u32 k_row_bytes;
  u32 v_row_bytes;
  u32 row_keys;   // room for a token's, in every head
  u32 begin;      // position of the first token
  u32 dense_end;  // tokens before it have chosen nothing
  u32 most;
  u32 unit;
  u32 whole;  // the last candidate is behind those that a token sees whole
  u32 kv_heads;
  u32 group_kv_heads;
  u32 page_tokens;
  u32 num_pages;
  u32 wide;  // all rows begin on 16-byte boundaries and are multiples of them
};

/// Keys of pools, then those of tokens. `lengths` as WriteHeadsParams has it.
struct GatherPooledParams {
  u64 lengths;
  u64 token_bytes;  // of pages, between tokens
  u32 row_bytes;
  u32 row_keys;  // room for a token's
  u32 begin;     // position of the first token
  u32 most;      // tokens that see more pools have chosen so many; 0: all see all
  u32 unit;      // tokens of a pool
  u32 window;
  u32 page_pools;
  u32 page_tokens;
  u32 num_pages;
  u32 wide;  // all rows begin on 16-byte boundaries and are multiples of them
};

}  // namespace gpu
}  // namespace moeflux
