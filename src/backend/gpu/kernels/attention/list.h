// Kernels of attention and of heads on their way to it; kernel_list.h says what a line holds.
#pragma once

#include "backend/gpu/kernels/attention/latent_params.h"
#include "backend/gpu/kernels/attention/params.h"
#include "backend/gpu/kernels/attention/select_params.h"

#define MF_ATTENTION_KERNELS(X)                                        \
  X(rope_heads, 3, RopeParams, kWaits)                                 \
  X(write_heads, 10, WriteHeadsParams, kReadsEarly)                    \
  X(attention_heads, 8, AttentionParams, kWaits)                       \
  X(attention_heads_f16, 8, AttentionParams, kWaits)                   \
  X(attention_heads_q8, 8, AttentionParams, kWaits)                    \
  X(attention_merge, 4, AttentionParams, kWaits)                       \
  X(mma_attention_halves, 3, AttentionParams, kWaits)                  \
  X(mma_attention_halves_f16, 3, AttentionParams, kWaits)              \
  X(mma_attention_halves_q8, 3, AttentionParams, kWaits)               \
  X(mma_attention_few, 6, AttentionParams, kReadsEarly)                \
  X(mma_attention_few_parts, 4, AttentionParams, kReadsEarly)          \
  X(mma_attention_few_d256, 6, AttentionParams, kReadsEarly)           \
  X(mma_attention_few_parts_d256, 4, AttentionParams, kReadsEarly)     \
  X(mma_attention_few_f16, 6, AttentionParams, kReadsEarly)            \
  X(mma_attention_few_parts_f16, 4, AttentionParams, kReadsEarly)      \
  X(mma_attention_few_f16_d256, 6, AttentionParams, kReadsEarly)       \
  X(mma_attention_few_parts_f16_d256, 4, AttentionParams, kReadsEarly) \
  X(mma_attention_few_q8, 6, AttentionParams, kReadsEarly)             \
  X(mma_attention_few_parts_q8, 4, AttentionParams, kReadsEarly)       \
  X(mma_attention_few_q8_d256, 6, AttentionParams, kReadsEarly)        \
  X(mma_attention_few_parts_q8_d256, 4, AttentionParams, kReadsEarly)  \
  X(mma_attention_few_tiles_f16_d64, 4, AttentionParams, kReadsEarly)  \
  X(mma_attention_few_tiles_f16_d128, 4, AttentionParams, kReadsEarly) \
  X(mma_attention_few_tiles_f16_d256, 4, AttentionParams, kReadsEarly) \
  X(mma_attention_few_tiles_q8_d64, 4, AttentionParams, kReadsEarly)   \
  X(mma_attention_few_tiles_q8_d128, 4, AttentionParams, kReadsEarly)  \
  X(mma_attention_few_tiles_q8_d256, 4, AttentionParams, kReadsEarly)  \
  X(mma_attention_many_r128, 6, AttentionParams, kWaits)               \
  X(mma_attention_many_r64, 6, AttentionParams, kWaits)                \
  X(mma_attention_many_parts_r128, 6, AttentionParams, kWaits)         \
  X(mma_attention_many_parts_r64, 6, AttentionParams, kWaits)          \
  X(mma_attention_many_f16_r128, 6, AttentionParams, kWaits)           \
  X(mma_attention_many_f16_r64, 6, AttentionParams, kWaits)            \
  X(mma_attention_many_parts_f16_r128, 6, AttentionParams, kWaits)     \
  X(mma_attention_many_parts_f16_r64, 6, AttentionParams, kWaits)      \
  X(mma_attention_many_f16_r64_d128, 6, AttentionParams, kWaits)       \
  X(mma_attention_team_halves, 3, AttentionParams, kWaits)             \
  X(mma_attention_team_d64, 6, AttentionParams, kWaits)                \
  X(mma_attention_team_d128, 6, AttentionParams, kWaits)               \
  X(mma_attention_team_d256, 6, AttentionParams, kWaits)               \
  X(mma_attention_wide_r16, 6, AttentionParams, kWaits)                \
  X(mma_attention_wide_r32, 6, AttentionParams, kWaits)                \
  X(mma_attention_wide_f16_r16, 6, AttentionParams, kWaits)            \
  X(mma_attention_wide_f16_r32, 6, AttentionParams, kWaits)            \
  X(mma_attention_wide_q8_r16, 6, AttentionParams, kWaits)             \
  X(mma_attention_wide_q8_r32, 6, AttentionParams, kWaits)             \
  X(mma_attention_wide_few, 3, AttentionParams, kReadsEarly)           \
  X(mma_attention_wide_few_f16, 3, AttentionParams, kReadsEarly)       \
  X(mma_attention_wide_halves_f16, 2, AttentionParams, kWaits)         \
  X(mma_attention_wide_many_f16_r64, 5, AttentionParams, kWaits)       \
  X(latent_queries_w4, 10, LatentQueriesParams, kReadsEarly)           \
  X(latent_queries_w8, 10, LatentQueriesParams, kReadsEarly)           \
  X(latent_queries_rows_w4, 10, LatentQueriesParams, kReadsEarly)      \
  X(latent_queries_rows_w8, 10, LatentQueriesParams, kReadsEarly)      \
  X(latent_queries_few_w4, 10, LatentQueriesParams, kReadsEarly)       \
  X(latent_values_w4, 6, LatentValuesParams, kWaits)                   \
  X(latent_values_few_w4, 6, LatentValuesParams, kWaits)               \
  X(latent_values_w8, 6, LatentValuesParams, kWaits)                   \
  X(index_scores, 4, IndexScoresParams, kWaits)                        \
  X(index_scores_f16, 4, IndexScoresParams, kWaits)                    \
  X(mma_index_scores, 4, IndexScoresParams, kWaits)                    \
  X(mma_index_scores_f16, 4, IndexScoresParams, kWaits)                \
  X(mask_candidates, 2, MaskParams, kWaits)                            \
  X(choose_best, 2, ChooseParams, kWaits)                              \
  X(pool_rows, 7, PoolParams, kWaits)                                  \
  X(gather_rows, 5, GatherParams, kWaits)                              \
  X(gather_pooled, 4, GatherPooledParams, kWaits)
