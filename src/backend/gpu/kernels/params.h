// Parameter structs of kernels: what several folders share. Plain data of fixed layout: the encoder
// fills them in, every dialect reads them as they are.
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
  u32 activation;  // 0 silu, 1 sigmoid, 2 gelu_tanh, 3 identity, 4 relu
  u32 weights;     // rms_norm: row r takes its row r % weights; 0: it has none
  u32 has_gate;    // rms_norm_narrow: times activation(b)
  u32 wide;        // all rows begin on 16-byte boundaries and are multiples of them
  u32 simd_rows;   // rms_norm_narrow
  f32 factor;      // scale, cap, epsilon, or alpha of a gated unit
  f32 limit;
  f32 up_offset;
};

/// How numbers are stored. Affine formats are their bits; from kFormatCoded on, coded_list.h.
enum : u32 {
  kScalesE8m0 = 8,  // powers of two, of a byte: scales only
  kFormatF16 = 16,
  kFormatBf16 = 17,
  kFormatF32 = 32,
  kScalesAndZeros = 33,  // in f32, a zero point behind each scale
  kFormatCoded = 64,
  kFormatGgml = 96
};

/// A row-major matrix in its storage format.
struct MatrixLayout {
  u32 rows;
  u32 cols;
  u32 format;
  union {
    u32 group_shift;  // log2 of the columns that share a scale
    u32 groups;       // of a row of grouped_int
  };
  u32 scales;     // format of scales and biases
  u32 wide;       // rows begin on 16-byte boundaries
  u32 row_shift;  // log2 of the rows that share a scale, in formats read number by number
  union {
    u32 variant;    // QuantFormat::variant
    u32 code_bits;  // of grouped_int
  };
};

/// No expert; in the map from expert ids to entries: not ready.
enum : u32 { kNoEntry = 0xffffffffu };

/// Activations per token and per head, in elements.
struct HeadsLayout {
  u64 token_stride;
  u64 head_stride;
};

}  // namespace gpu
}  // namespace moeflux
