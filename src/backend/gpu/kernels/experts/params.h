// Routed experts.
#pragma once

#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

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
enum : u32 { kEntryWords = sizeof(ExpertEntry) / sizeof(u64) };

/// Slots of experts in far memory, and places of the same size, from these addresses on.
struct FetchParams {
  u64 far;
  u64 far_bytes;
  u64 landing;
  u64 slot_bytes;
  u32 copy_bytes;  // of a slot, those that hold an expert; a multiple of 16
  u32 places;
  u32 slots;  // of routes
  u32 ids;    // of the map
  u32 groups;
};

/// One group lists so few, of entries of so many bits. It has so many words for 32 slots.
enum : u32 { kListedSlotsFew = 1024, kListedEntryBits = 10, kListedWords = 12 };

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
