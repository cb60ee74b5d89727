// Kernels of norms and of the sums they are of; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/norm/params.h"

#define MF_NORM_KERNELS(X)                         \
  X(rms_norm_narrow, 4, RowsParams, kWaits)        \
  X(rms_norm_wide, 3, RowsParams, kWaits)          \
  X(rms_norm_chain, 10, ChainParams, kWaits)       \
  X(rms_norm_chain_long, 10, ChainParams, kWaits)  \
  X(rms_norm_chain_short, 12, ChainParams, kWaits) \
  X(rms_norm_chain_few, 7, ChainParams, kWaits)    \
  X(chain_sums, 8, ChainParams, kWaits)            \
  X(layer_norm_rows, 3, RowsParams, kWaits)
