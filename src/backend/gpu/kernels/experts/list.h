// Kernels of routed experts; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/coded_list.h"
#include "backend/gpu/kernels/experts/mma_params.h"
#include "backend/gpu/kernels/experts/params.h"
#include "backend/gpu/kernels/variants.h"

// Experts of single tokens, of a type of GGML's that the kernel knows.
#define MF_ONE_EXPERTS(X, type)                                    \
  X(mma_gate_up_##type##_t1, 10, MmaExpertsOneParams, kWaits)      \
  X(mma_gate_up_list_##type##_t1, 10, MmaExpertsOneParams, kWaits) \
  X(mma_down_##type##_t1, 11, MmaExpertsOneParams, kReadsEarly)    \
  X(mma_down_sum_##type##_t1, 16, MmaDownSumParams, kReadsEarly)

#define MF_EXPERTS_KERNELS(X)                                  \
  X(expert_lists, 4, ExpertListParams, kWaits)                 \
  X(expert_tiles, 2, ExpertListParams, kWaits)                 \
  X(expert_tiles_of_few, 4, ExpertListParams, kWaits)          \
  X(fetch_experts, 4, FetchParams, kWaits)                     \
  MF_FORMATS(X, expert_linear, 7, ExpertParams)                \
  MF_FORMATS(X, expert_gate_up, 7, ExpertParams)               \
  MF_LARGE_TILES(X, expert_linear, 7, ExpertParams)            \
  MF_LARGE_TILES(X, expert_gate_up, 7, ExpertParams)           \
  X(combine_slots, 3, CombineParams, kWaits)                   \
  X(mma_gate_up_w4_t1, 10, MmaExpertsOneParams, kWaits)        \
  X(mma_gate_up_w8_t1, 10, MmaExpertsOneParams, kWaits)        \
  X(mma_gate_up_ggml_t1, 10, MmaExpertsOneParams, kWaits)      \
  X(mma_gate_up_list_w4_t1, 10, MmaExpertsOneParams, kWaits)   \
  X(mma_gate_up_list_ggml_t1, 10, MmaExpertsOneParams, kWaits) \
  X(mma_down_w4_t1, 11, MmaExpertsOneParams, kReadsEarly)      \
  X(mma_down_w8_t1, 11, MmaExpertsOneParams, kReadsEarly)      \
  X(mma_down_ggml_t1, 11, MmaExpertsOneParams, kReadsEarly)    \
  X(mma_down_sum_w4_t1, 16, MmaDownSumParams, kReadsEarly)     \
  X(mma_down_sum_w8_t1, 16, MmaDownSumParams, kReadsEarly)     \
  X(mma_down_sum_ggml_t1, 16, MmaDownSumParams, kReadsEarly)   \
  MF_GGML_ONE_TYPES(MF_ONE_EXPERTS, X)                         \
  X(mma_gate_up_w4_t4, 7, MmaExpertsFewParams, kWaits)         \
  X(mma_gate_up_w4_t8, 7, MmaExpertsFewParams, kWaits)         \
  X(mma_gate_up_w4_t16, 7, MmaExpertsFewParams, kWaits)        \
  X(mma_gate_up_q4_0_t4, 7, MmaExpertsFewParams, kWaits)       \
  X(mma_gate_up_q4_k_t4, 7, MmaExpertsFewParams, kWaits)       \
  X(mma_gate_up_q6_k_t4, 7, MmaExpertsFewParams, kWaits)       \
  X(mma_gate_up_mxfp4_t4, 7, MmaExpertsFewParams, kWaits)      \
  X(mma_gate_up_ggml_t4, 7, MmaExpertsFewParams, kWaits)       \
  X(mma_gate_up_ggml_t8, 7, MmaExpertsFewParams, kWaits)       \
  X(mma_gate_up_ggml_t16, 7, MmaExpertsFewParams, kWaits)      \
  X(mma_down_w4_t4, 8, MmaExpertsFewParams, kWaits)            \
  X(mma_down_w4_t8, 8, MmaExpertsFewParams, kWaits)            \
  X(mma_down_w4_t16, 8, MmaExpertsFewParams, kWaits)           \
  X(mma_down_q4_0_t4, 10, MmaExpertsFewParams, kWaits)         \
  X(mma_down_q4_k_t4, 10, MmaExpertsFewParams, kWaits)         \
  X(mma_down_q6_k_t4, 10, MmaExpertsFewParams, kWaits)         \
  X(mma_down_mxfp4_t4, 10, MmaExpertsFewParams, kWaits)        \
  X(mma_down_ggml_t4, 10, MmaExpertsFewParams, kWaits)         \
  X(mma_down_ggml_t8, 10, MmaExpertsFewParams, kWaits)         \
  X(mma_down_ggml_t16, 10, MmaExpertsFewParams, kWaits)        \
  X(mma_gate_up_ggml, 6, MmaExpertParams, kWaits)              \
  X(mma_down_ggml, 6, MmaExpertParams, kWaits)                 \
  X(mma_gate_up, 6, MmaExpertParams, kWaits)                   \
  X(mma_down, 6, MmaExpertParams, kWaits)
