// Every kernel once: its name, how many buffers it binds and what its parameter struct is. A
// dialect expands the list into its own table: functions for the emulator and CUDA, names for
// Metal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/gpu/kernels/mma_params.h"

// Matrix products come in variants: of 1, 4 and 8 tokens a group, for every storage format. Plans
// choose with matrix_kernel(), which counts on this order.
#define MF_TILES(X, name, bindings, Params) \
  X(name##_t1, bindings, Params) X(name##_t4, bindings, Params) X(name##_t8, bindings, Params)
#define MF_FORMATS(X, name, bindings, Params) \
  MF_TILES(X, name##_f32, bindings, Params)   \
  MF_TILES(X, name##_f16, bindings, Params)   \
  MF_TILES(X, name##_bf16, bindings, Params)  \
  MF_TILES(X, name##_w2, bindings, Params)    \
  MF_TILES(X, name##_w3, bindings, Params)    \
  MF_TILES(X, name##_w4, bindings, Params)    \
  MF_TILES(X, name##_w5, bindings, Params)    \
  MF_TILES(X, name##_w6, bindings, Params)    \
  MF_TILES(X, name##_w8, bindings, Params)

// X(name, bindings, parameter struct)
#define MOEFLUX_GPU_KERNELS(X)                         \
  X(copy_rows, 2, RowsParams)                          \
  X(add_rows, 3, RowsParams)                           \
  X(scale_rows, 2, RowsParams)                         \
  X(soft_cap_rows, 1, RowsParams)                      \
  X(add_bias_rows, 2, RowsParams)                      \
  X(mul_activated_rows, 3, RowsParams)                 \
  X(glu_rows, 3, RowsParams)                           \
  X(rms_norm_narrow, 4, RowsParams)                    \
  X(rms_norm_wide, 3, RowsParams)                      \
  X(rms_norm_chain, 10, ChainParams)                   \
  X(rms_norm_chain_long, 10, ChainParams)              \
  X(rms_norm_chain_short, 10, ChainParams)             \
  X(rms_norm_chain_few, 7, ChainParams)                \
  X(chain_sums, 8, ChainParams)                        \
  X(rope_heads, 3, RopeParams)                         \
  X(embed_rows, 5, EmbedParams)                        \
  MF_FORMATS(X, linear, 5, LinearParams)               \
  X(linear_few_rows_f32_t1, 3, FewRowsParams)          \
  X(linear_few_rows_normed_f32_t1, 7, FewRowsParams)   \
  X(linear_few_rows_f16_t1, 3, FewRowsParams)          \
  X(linear_few_rows_normed_f16_t1, 7, FewRowsParams)   \
  X(linear_few_rows_bf16_t1, 3, FewRowsParams)         \
  X(linear_few_rows_normed_bf16_t1, 7, FewRowsParams)  \
  X(head_linear_transposed_t4, 5, LinearParams)        \
  X(head_linear_transposed_t16, 5, LinearParams)       \
  X(write_heads, 10, WriteHeadsParams)                 \
  X(attention_heads, 7, AttentionParams)               \
  X(attention_merge, 4, AttentionParams)               \
  X(mma_attention_halves, 3, AttentionParams)          \
  X(mma_attention_few, 7, AttentionParams)             \
  X(mma_attention_few_parts, 7, AttentionParams)       \
  X(mma_attention_few_d256, 7, AttentionParams)        \
  X(mma_attention_few_parts_d256, 7, AttentionParams)  \
  X(mma_attention_many_r128, 6, AttentionParams)       \
  X(mma_attention_many_r64, 6, AttentionParams)        \
  X(mma_attention_many_parts_r128, 6, AttentionParams) \
  X(mma_attention_many_parts_r64, 6, AttentionParams)  \
  X(mma_attention_wide_r16, 6, AttentionParams)        \
  X(mma_attention_wide_r32, 6, AttentionParams)        \
  X(mma_attention_wide_few, 3, AttentionParams)        \
  X(latent_queries_w4, 10, LatentQueriesParams)        \
  X(latent_queries_w8, 10, LatentQueriesParams)        \
  X(latent_queries_rows_w4, 10, LatentQueriesParams)   \
  X(latent_queries_rows_w8, 10, LatentQueriesParams)   \
  X(latent_queries_few_w4, 10, LatentQueriesParams)    \
  X(latent_values_w4, 6, LatentValuesParams)           \
  X(latent_values_few_w4, 6, LatentValuesParams)       \
  X(latent_values_w8, 6, LatentValuesParams)           \
  X(causal_conv_rows, 4, ConvParams)                   \
  X(causal_conv_shift, 2, ConvParams)                  \
  X(causal_conv_t1, 4, ConvParams)                     \
  X(gated_delta_heads, 7, DeltaParams)                 \
  X(gated_delta_heads_wide, 7, DeltaParams)            \
  X(gated_delta_t1_d128, 9, DeltaOneParams)            \
  X(route_tokens, 5, RouteParams)                      \
  X(route_many, 5, RouteParams)                        \
  X(top_values, 4, TopParams)                          \
  X(read_out, 2, ReadOutParams)                        \
  X(expert_lists, 4, ExpertListParams)                 \
  X(expert_tiles, 2, ExpertListParams)                 \
  MF_FORMATS(X, expert_linear, 7, ExpertParams)        \
  MF_FORMATS(X, expert_gate_up, 7, ExpertParams)       \
  MF_TILES(X, expert_gate_up_any, 7, ExpertParams)     \
  X(combine_slots, 3, CombineParams)                   \
  X(mma_linear_t1, 20, MmaLinearParams)                \
  X(mma_linear_w4_t1, 20, MmaLinearParams)             \
  X(mma_normed_linear_t1, 24, MmaNormedParams)         \
  X(mma_normed_linear_w4_t1, 24, MmaNormedParams)      \
  X(mma_quantize_rows, 3, QuantizeRowsParams)          \
  X(mma_linear, 18, MmaLinearParams)                   \
  X(mma_gate_up_w4_t1, 10, MmaExpertsOneParams)        \
  X(mma_gate_up_w8_t1, 10, MmaExpertsOneParams)        \
  X(mma_gate_up_list_w4_t1, 10, MmaExpertsOneParams)   \
  X(mma_down_w4_t1, 11, MmaExpertsOneParams)           \
  X(mma_down_w8_t1, 11, MmaExpertsOneParams)           \
  X(mma_down_sum_w4_t1, 16, MmaDownSumParams)          \
  X(mma_down_sum_w8_t1, 16, MmaDownSumParams)          \
  X(mma_gate_up, 6, MmaExpertParams)                   \
  X(mma_down, 6, MmaExpertParams)

namespace moeflux::gpu {

enum class KernelId : uint16_t {
#define MF_ENUMERATOR(name, bindings, Params) name,
  MOEFLUX_GPU_KERNELS(MF_ENUMERATOR)
#undef MF_ENUMERATOR
};

struct KernelInfo {
  std::string_view name;
  uint32_t bindings;
  uint32_t params_bytes;
};

inline constexpr std::array kKernels = {
#define MF_INFO(name, bindings, Params) KernelInfo{#name, bindings, sizeof(Params)},
    MOEFLUX_GPU_KERNELS(MF_INFO)
#undef MF_INFO
};

constexpr const KernelInfo& kernel_info(KernelId id) { return kKernels[static_cast<size_t>(id)]; }

/// Kernels that touch what launches write before their inputs are there (dialect/cuda.h): they may
/// be set up once the last launch has its inputs, not earlier. All others then only read weights.
constexpr bool reads_early(KernelId id) {
  switch (id) {
    case KernelId::mma_attention_few:
    case KernelId::mma_attention_few_parts:
    case KernelId::mma_attention_few_d256:
    case KernelId::mma_attention_few_parts_d256:
    case KernelId::mma_attention_wide_few:
    case KernelId::gated_delta_t1_d128:
    case KernelId::latent_queries_w4:
    case KernelId::latent_queries_w8:
    case KernelId::latent_queries_rows_w4:
    case KernelId::latent_queries_rows_w8:
    case KernelId::latent_queries_few_w4:
    case KernelId::write_heads:
    case KernelId::mma_down_w4_t1:
    case KernelId::mma_down_w8_t1:
    case KernelId::mma_down_sum_w4_t1:
    case KernelId::mma_down_sum_w8_t1:
      return true;
    default:
      return false;
  }
}

}  // namespace moeflux::gpu
