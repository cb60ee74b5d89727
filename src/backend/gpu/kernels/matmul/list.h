// Kernels of products with matrices; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/coded_list.h"
#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/kernels/variants.h"

// Products of single tokens with matrices of a type of GGML's that the kernel knows.
#define MF_ONE_LINEAR(X, type)                           \
  X(mma_linear_##type##_t1, 21, MmaLinearParams, kWaits) \
  X(mma_normed_linear_##type##_t1, 25, MmaNormedParams, kWaits)

#define MF_MATMUL_KERNELS(X)                                  \
  MF_FORMATS(X, linear, 5, LinearParams)                      \
  MF_LARGE_TILES(X, linear, 5, LinearParams)                  \
  X(linear_few_rows_f32_t1, 4, FewRowsParams, kWaits)         \
  X(linear_few_rows_normed_f32_t1, 8, FewRowsParams, kWaits)  \
  X(linear_few_rows_f16_t1, 4, FewRowsParams, kWaits)         \
  X(linear_few_rows_normed_f16_t1, 8, FewRowsParams, kWaits)  \
  X(linear_few_rows_bf16_t1, 4, FewRowsParams, kWaits)        \
  X(linear_few_rows_normed_bf16_t1, 8, FewRowsParams, kWaits) \
  X(head_linear_transposed_t4, 5, LinearParams, kWaits)       \
  X(head_linear_transposed_t16, 5, LinearParams, kWaits)      \
  X(linear_coded_t1, 5, LinearParams, kWaits)                 \
  X(unpack_heads, 4, UnpackParams, kWaits)                    \
  X(head_tile_lanes, 3, HeadTileParams, kWaits)               \
  X(head_tile_parts, 3, HeadTileParams, kWaits)               \
  X(mma_linear_t1, 21, MmaLinearParams, kWaits)               \
  X(mma_linear_w4_t1, 21, MmaLinearParams, kWaits)            \
  X(mma_linear_ggml_t1, 21, MmaLinearParams, kWaits)          \
  X(mma_normed_linear_t1, 25, MmaNormedParams, kWaits)        \
  X(mma_normed_linear_w4_t1, 25, MmaNormedParams, kWaits)     \
  X(mma_normed_linear_ggml_t1, 25, MmaNormedParams, kWaits)   \
  MF_GGML_ONE_TYPES(MF_ONE_LINEAR, X)                         \
  X(mma_linear_t8, 18, MmaLinearParams, kWaits)               \
  X(mma_linear_t16, 18, MmaLinearParams, kWaits)              \
  X(mma_linear_t32, 18, MmaLinearParams, kWaits)              \
  X(mma_linear_w4_t8, 18, MmaLinearParams, kWaits)            \
  X(mma_linear_w4_t16, 18, MmaLinearParams, kWaits)           \
  X(mma_linear_w4_t32, 18, MmaLinearParams, kWaits)           \
  X(mma_linear_q4_0_t8, 18, MmaLinearParams, kWaits)          \
  X(mma_linear_q4_k_t8, 18, MmaLinearParams, kWaits)          \
  X(mma_linear_q6_k_t8, 18, MmaLinearParams, kWaits)          \
  X(mma_linear_ggml_t8, 18, MmaLinearParams, kWaits)          \
  X(mma_linear_ggml_t16, 18, MmaLinearParams, kWaits)         \
  X(mma_linear_ggml_t32, 18, MmaLinearParams, kWaits)         \
  X(mma_quantize_rows, 3, QuantizeRowsParams, kWaits)         \
  X(mma_linear, 18, MmaLinearParams, kWaits)                  \
  X(mma_linear_ggml, 18, MmaLinearParams, kWaits)
