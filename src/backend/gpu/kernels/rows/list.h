// Kernels of rows; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/rows/params.h"

#define MF_ROWS_KERNELS(X)                      \
  X(copy_rows, 2, RowsParams, kWaits)           \
  X(add_rows, 3, RowsParams, kWaits)            \
  X(scale_rows, 2, RowsParams, kWaits)          \
  X(soft_cap_rows, 1, RowsParams, kWaits)       \
  X(add_bias_rows, 2, RowsParams, kWaits)       \
  X(mul_activated_rows, 3, RowsParams, kWaits)  \
  X(glu_rows, 3, RowsParams, kWaits)            \
  X(embed_rows, 5, EmbedParams, kWaits)         \
  X(read_streams, 7, StreamGateParams, kWaits)  \
  X(expand_streams, 5, ExpandParams, kWaits)    \
  X(sum_gated, 3, SumGatedParams, kWaits)       \
  X(root_dots, 3, RootDotParams, kWaits)        \
  X(mix_blocks, 4, MixBlocksParams, kWaits)     \
  X(round_blocks, 1, RoundBlocksParams, kWaits) \
  X(clip_rows, 1, ClipRowsParams, kWaits)       \
  X(top_values, 5, TopParams, kWaits)           \
  X(read_out, 2, ReadOutParams, kWaits)
