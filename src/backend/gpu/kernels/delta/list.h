// Kernels of the causal convolution and the delta rule; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/delta/params.h"

#define MF_DELTA_KERNELS(X)                                    \
  X(causal_conv_rows, 5, ConvParams, kWaits)                   \
  X(causal_conv_segments, 7, ConvParams, kWaits)               \
  X(causal_conv_shift, 2, ConvParams, kWaits)                  \
  X(causal_conv_t1, 6, ConvParams, kWaits)                     \
  X(token_conv, 6, TokenConvParams, kWaits)                    \
  X(token_conv_segments, 7, TokenConvParams, kWaits)           \
  X(gated_delta_heads, 8, DeltaParams, kWaits)                 \
  X(gated_delta_heads_wide, 8, DeltaParams, kWaits)            \
  X(gated_delta_row_heads, 8, DeltaParams, kWaits)             \
  X(selective_scan_heads, 8, DeltaParams, kWaits)              \
  X(gated_delta_segments, 8, DeltaParams, kWaits)              \
  X(gated_delta_segments_wide, 8, DeltaParams, kWaits)         \
  X(gated_delta_row_segments, 8, DeltaParams, kWaits)          \
  X(selective_scan_segments, 8, DeltaParams, kWaits)           \
  X(gated_delta_t1_d128, 10, DeltaOneParams, kReadsEarly)      \
  X(gated_delta_rows_t1_d128, 10, DeltaOneParams, kReadsEarly) \
  X(gated_delta_list_t1_d128, 10, DeltaOneParams, kWaits)      \
  X(gated_delta_rows_list_t1_d128, 10, DeltaOneParams, kWaits)
