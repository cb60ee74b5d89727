// What the int8 kernels take and the table they are called through. Plain data only, like
// kernel_table.h.
//
// The definition, in which dot and sum are exact integers and groups g come in order:
//   acc = fma(w_scale[g] * x_scale[g], float(dot[g]), acc)
//   acc = fma(w_bias[g], x_scale[g] * float(sum[g]), acc)
// One chain of f32 operations per (row, token) and nothing else is rounded: every instruction set
// computes the same bits, for any number of tokens.
#pragma once

#include "backend/cpu/kernels/kernel_table.h"

namespace moeflux::cpu {

/// A token's activations as int8, per group: x = scale * code. Every eight codes are stored as
/// those of even index and then those of odd index: the order in which 4-bit weights unpack.
struct Int8Token {
  const int8_t* codes;  // [cols]
  const float* scales;  // [groups]
  const float* sums;    // [groups], scale * sum of codes
};

constexpr int64_t kInt8Rows = 32;     // of one panel, at most
constexpr int64_t kInt8Tokens = 128;  // of one panel, at most

/// out[t][i] = w[row + i] . x[t] for up to kInt8Rows rows. What lies behind the rows asked for is
/// overwritten.
struct Int8PanelArgs {
  MatrixArgs w;  // 4 or 8 bits
  const Int8Token* x;
  int64_t tokens;
  int64_t row;
  int64_t rows;
  float (*out)[kInt8Rows];
};

struct Int8Kernels {
  const char* name;
  /// Per group: scale = largest magnitude / 127, codes = x / scale rounded to nearest. A group
  /// with an infinity or a NaN gets scale NaN; one too small for f32 arithmetic counts as zeros.
  void (*quantize)(const float* x, int64_t cols, int64_t group_size, int8_t* codes, float* scales,
                   float* sums);
  void (*panel)(const Int8PanelArgs& args);
};

extern const Int8Kernels kGenericInt8Kernels;
extern const Int8Kernels kAvx2Int8Kernels;
extern const Int8Kernels kAvx512VnniInt8Kernels;

}  // namespace moeflux::cpu
