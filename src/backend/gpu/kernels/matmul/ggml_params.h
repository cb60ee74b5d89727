// GGML's types by their numbers in MatrixLayout::format, and how splits of their rows lie in shared
// memory: what kernels and plans agree on.
#pragma once

#include "backend/gpu/kernels/coded_list.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/params.h"

namespace moeflux {
namespace gpu {

// clang-format off
enum : u32 {
  kGgmlTypesBegin = kFormatGgml - 1,
#define MF_GGML_NUMBER(name, elements, bytes) kGgml_##name,
  MF_GGML_FORMATS(MF_GGML_NUMBER)
#undef MF_GGML_NUMBER
};
enum : u32 {
#define MF_GGML_SPLIT(name, elements, bytes) kSplitBytes_##name = kMmaSplit / elements * bytes,
  MF_GGML_FORMATS(MF_GGML_SPLIT)
#undef MF_GGML_SPLIT
};
// clang-format on

enum : u32 { kSplitBytes_fp8 = kMmaSplit };

/// Narrow affine groups have numbers behind that of FP8. Scales and biases lie apart from codes,
/// and go behind these in shared memory.
// clang-format off
enum : u32 {
  kAffineTypesBegin = kMmaFp8,
#define MF_AFFINE_NUMBER(name, bits, scale_bytes) kGgml_##name,
  MF_AFFINE_MMA_TYPES(MF_AFFINE_NUMBER)
#undef MF_AFFINE_NUMBER
};
// clang-format on
/// Columns of a scale at least, and a row's scales of a split.
enum : u32 { kNarrowGroup = 32, kNarrowScales = kMmaSplit / kNarrowGroup };
template <u32 BITS, u32 SCALE_BYTES>
struct AffineSplit {
  enum : u32 {
    kCodeBytes = kMmaSplit / 8u * BITS,
    kPlaceBytes = kCodeBytes + 2u * kNarrowScales * SCALE_BYTES,
  };
};

/// The splits of 16 rows in shared memory: where each row begins, the last block, and the factors
/// of the matrices that the first 8 rows and the others are of. FP8 has the addresses of both
/// matrices' scales of the split, two words each, and the first row. Then come the rows, in pieces
/// of 16 bytes that lie to multiples of 32 as they do in memory. A row is an odd number of 32 bytes
/// further than the one before, so that reads of neighbours meet other banks.
enum : u32 {
  kMmaGgmlHeadWords = 24,
  kMmaGgmlLastBlock = kMmaRows,
  kMmaGgmlOuter = kMmaGgmlLastBlock + 1,
  kMmaFp8Scales = kMmaGgmlOuter + 2,
  kMmaFp8Row = kMmaFp8Scales + 4,
};
static_assert(u32{kMmaFp8Row} < u32{kMmaGgmlHeadWords}, "the head has room");
/// Many tokens have so many blocks of FP8 in a place, as many as a stage may have: a split of it
/// would leave too little memory for stages.
enum : u32 { kFp8PlaceBlocks = kGgmlStageBlocksMax };
template <u32 SPLIT_BYTES>
struct MmaGgmlPlace {
  enum : u32 {
    kRowWords = ((SPLIT_BYTES + 62u) / 32u | 1u) * 8u,
    kWords = kMmaGgmlHeadWords + kMmaRows * kRowWords,
  };
};
typedef MmaGgmlPlace<kFp8PlaceBlocks * u32{kMmaBlock}> MmaFp8Place;

}  // namespace gpu
}  // namespace moeflux
