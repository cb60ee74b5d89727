// The causal convolution and the delta rule.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

enum : u32 { kConvTokens = 8, kConvTapsHeld = 4 };
enum : u32 { kConvOneTapsMax = 4 };  // of the kernels for a single token
struct ConvParams {
  u64 x_stride;
  u64 out_stride;
  u32 tokens;
  u32 channels;
  u32 taps;
  u32 wide;        // of several tokens: few taps, four channels a thread, which begin on 16-byte
                   // boundaries
  u32 activation;  // 0 silu, 3 identity
  u32 has_bias;
  u32 has_states;  // causal_conv_t1: a token of each of several sequences, whose states are by
                   // address
};

/// The same with taps of each token.
struct TokenConvParams {
  u64 x_stride;
  u64 out_stride;
  u32 tokens;
  u32 channels;
  u32 groups;  // of channels with the same of these
  u32 taps;
  u32 group_tokens;  // at least taps - 1
  u32 has_states;    // a token of each of several sequences, whose states are by address
};

/// The delta rule of many tokens: a group has 32 columns of a head's state. Some SIMD groups have a
/// few columns each; the others bring kDeltaTokenUnits / (units of 32 rows of keys) tokens at a
/// time. Sums over rows of the state are made over parts of them first.
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
  // A token's shared memory besides its key and its query, in words: values, deltas, results in
  // kDeltaOutParts parts, which begin on different banks, and DeltaScalars.
  kDeltaOutParts = kDeltaParts / kDeltaLaneColumns,
  kDeltaOutPart = kDeltaColumns + 2 * kDeltaLaneColumns,
  kDeltaTokenWords = 2 * kDeltaColumns + kDeltaOutParts * kDeltaOutPart + 8,
};

/// How a head's state goes on.
enum : u32 {
  kStateDelta = 0,     // the delta rule with a decay a head
  kStateRowDelta = 1,  // with a decay for each row of the state
  kStateScan = 2,      // the selective scan: no recall
};

struct DeltaParams {
  u64 qkv_stride;
  u64 a_stride;
  u64 b_stride;
  HeadsLayout out;
  // Where a row has queries, keys and values.
  u32 query_at;
  u32 key_at;
  u32 value_at;
  u32 tokens;
  u32 key_heads;
  u32 heads_together;  // value heads side by side that share a key head
  u32 key_dim;
  u32 value_dim;
  u32 wide;          // queries, keys and values begin on 16-byte boundaries
  u32 block_tokens;  // that are brought at a time
  u32 has_states;    // a token of each of several sequences, whose states are by address
  f32 query_factor;  // 1 / sqrt(key_dim)
  f32 decay_bound;   // of a decay's logarithm; 0: none
};

/// One token of each sequence, or a few of one, whose heads may go on through a norm, which SiLU or
/// sigmoid of a gate may follow.
enum : u32 {
  kDeltaOneThreads = 512,
  kDeltaOneDim = 128,  // of keys and of values
  kDeltaOneTokensMax = 4,
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
  // And where rows decay by themselves.
  kDeltaOneDecays = kDeltaOneScalars + 4,
  kDeltaOneRowWords = kDeltaOneDecays + kDeltaOneDim,
  // Where a group has the heads of many sequences in turn: states on their way.
  kDeltaListBegin = (kDeltaOneRowWords + 31) / 32 * 32,
  kDeltaListPlaces = 3,
  kDeltaListWords = kDeltaListBegin + kDeltaListPlaces * kDeltaOneDim * kDeltaOneDim,
};
struct DeltaOneParams {
  // From a token's row to the next one's.
  u64 qkv_stride;
  u64 a_stride;
  u64 b_stride;
  u64 gate_stride;
  u64 out_stride;
  u64 gate_head_stride;
  u64 out_head_stride;
  u32 key_heads;
  // From the first value head of a key head to that of the next, and to the next of the same.
  u32 key_head_step;
  u32 value_head_step;
  u32 has_norm;
  u32 has_gate;
  u32 gate_activation;  // 0 silu, 1 sigmoid
  u32 early;            // the kernel before does not write the state
  u32 has_states;       // there are several sequences, whose states are by address
  u32 heads_per_key;
  u32 tokens;  // of each sequence
  u32 units;   // heads of all sequences, where groups take them in turn: so many
  u32 groups;
  f32 query_factor;
  f32 epsilon;
  f32 decay_bound;
};

}  // namespace gpu
}  // namespace moeflux
