// Routed experts on matrix units.
#pragma once

#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/params.h"
#include "backend/gpu/kernels/route/params.h"

namespace moeflux {
namespace gpu {

struct MmaExpertParams {
  MmaMatrix matrix;
  u64 x_stride;
  u64 out_stride;
  u32 cols;
  MmaWalk walk;
  u32 wide;
  u32 tile;  // as above
  u32 stages;
  u32 ids;
  u32 top_k;  // slots per row of x
  u32 bias_format;
  u32 activation;
  f32 alpha;
  f32 limit;
  f32 up_offset;
};

/// Slots of experts in tiles of a few, and a shared expert of the same formats that every token
/// goes through: its tiles come first among the groups y.
struct MmaExpertsFewParams {
  MmaExpertParams expert;
  ExpertMatrix shared[2];  // gate and up, or down
  u64 shared_x_stride;
  u64 shared_out_stride;
  u32 shared_tiles;  // 0: there is none
  u32 tokens;
  u32 token_words;  // of shared memory, where down keeps activations: cols / 2 of a token, then
                    // sums
  u32 has_shared_gate;
};

/// How groups share the tiles of a token's experts as one list, in which the shared expert's come
/// first. The shared expert's tiles are divided among the groups separately. A group keeps the
/// addresses of its experts in shared memory.
enum : u32 { kMmaListWords = 20 };  // of an expert
struct MmaExpertList {
  u32 shared_tiles;  // of a group, of the shared expert's,
  u32 shared_full;   // of so many groups; the others have one less
  u32 writer;        // the group that writes routes down
  u32 table;         // where the words begin
};

/// The slots of up to a few tokens, and a shared expert of the same formats that every token goes
/// through: group y is a slot, or behind those a token of the shared expert's. In
/// mma_gate_up_list it is a token.
struct MmaExpertsOneParams {
  MmaExpertParams expert;
  ExpertMatrix first[2];   // of expert 0, where experts lie evenly: gate and up, or down
  ExpertMatrix shared[2];  // the same of the shared expert
  u64 stride;              // bytes from an expert to the next; 0: look in map and entries
  u64 shared_x_stride;
  u64 shared_out_stride;
  u32 slots;
  u32 has_shared_gate;
  RouteParams route;  // of what chooses the slots' experts here; no thread_experts: ids are there
  MmaExpertList list;
};

/// Down with the sum of a token's slots, and up to two addends: a SIMD group a slot or the shared
/// expert, whose rows have one split.
enum : u32 { kMmaDownRanks = 12 };
struct MmaDownSumParams {
  MmaExpertsOneParams experts;
  u32 has_shared;
  u32 adds;
  u32 shared_addend;  // addend of the shared expert's result, 1 or 2; 0: none
  u32 late;           // ids are there with the inputs, not before
};

}  // namespace gpu
}  // namespace moeflux
