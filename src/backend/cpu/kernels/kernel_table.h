// What the per-ISA kernels take and the table they are called through. Plain data only: this header
// is compiled with several instruction sets, so it may hold no inline code that a linker could
// share.
#pragma once

#include <cstdint>

namespace moeflux::cpu {

enum class ElementType : int32_t { kF32, kF16, kBf16 };

/// A weight matrix as stored.
struct MatrixArgs {
  const uint8_t* data;
  const uint8_t* scales;
  const uint8_t* biases;
  int64_t rows;
  int64_t cols;
  ElementType type;  // of the elements (plain) or of scales and biases (affine)
  int32_t bits;      // 0: plain
  int32_t group_size;
};

/// A vector of a plain type that is added to products; null data adds nothing.
struct BiasArgs {
  const uint8_t* data;
  ElementType type;
};

/// out[t][r - out_row] = w[r] . x[t] + bias[r] for every token t and the rows [row_begin, row_end).
struct MatmulArgs {
  MatrixArgs w;
  BiasArgs bias;
  const float* const* x;  // per token; in permuted order when w.bits == 4
  float* const* out;      // per token
  int64_t tokens;
  int64_t row_begin;
  int64_t row_end;
  int64_t out_row;
};

/// out[t][c] = sum over r of x[t][r] * w[first_row + r][c] for the columns [col_begin, col_end).
struct TransposedMatmulArgs {
  MatrixArgs w;
  const float* const* x;  // per token, [rows]
  float* const* out;      // per token, [w.cols]
  int64_t tokens;
  int64_t first_row;
  int64_t rows;
  int64_t col_begin;  // a multiple of kTransposedColumns
  int64_t col_end;    // at most kTransposedColumns more
};
constexpr int64_t kTransposedColumns = 256;

enum class ActivationKind : int32_t { kSilu, kSigmoid, kGeluTanh };

/// A gated unit, as GluOptions defines it.
struct GluArgs {
  ActivationKind activation;
  float alpha;
  float limit;
  float up_offset;
};

/// out[t][r] = glu(gate[r] . x[t] + gate_bias[r], up[r] . x[t] + up_bias[r]).
struct GluMatmulArgs {
  MatrixArgs gate;
  MatrixArgs up;
  BiasArgs gate_bias;
  BiasArgs up_bias;
  const float* const* x_gate;  // per token; in permuted order when gate.bits == 4
  const float* const* x_up;
  float* const* out;
  int64_t tokens;
  int64_t row_begin;
  int64_t row_end;
  GluArgs glu;
};

constexpr int64_t kAttentionHeadsMax = 32;

/// One token's query heads that share a kv head, over the cached positions [begin, end).
struct AttentionArgs {
  const float* q;
  int64_t q_stride;  // between heads
  float* out;
  int64_t out_stride;
  int64_t heads;                // at most kAttentionHeadsMax
  const float* sinks;           // [heads] or null
  const float* const* k_pages;  // position t lies in page (t / page_tokens) % pages
  const float* const* v_pages;
  int64_t pages;
  int64_t page_tokens;
  int64_t k_stride;  // between positions of a page
  int64_t v_stride;
  int64_t kv_head_k_offset;
  int64_t kv_head_v_offset;
  int64_t begin;
  int64_t end;
  int64_t head_dim;
  int64_t v_head_dim;
  float scale;
};

/// One value head over n tokens.
struct GatedDeltaArgs {
  const float* q;
  const float* k;
  const float* v;
  int64_t qkv_stride;  // between tokens
  float* out;
  int64_t out_stride;
  const float* decay;  // [n]
  const float* beta;   // [n]
  float* state;        // [key_dim, value_dim]
  float* workspace;    // [2 * key_dim]
  int64_t n;
  int64_t key_dim;
  int64_t value_dim;
};

/// Channels [begin, end) of a depthwise convolution over n tokens.
struct CausalConvArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  const float* weight;  // [channels, taps]
  float* state;         // [taps - 1, channels]
  int64_t channels;
  int64_t taps;
  int64_t n;
  int64_t begin;
  int64_t end;
};

enum class RouterScoreKind : int32_t { kSoftmax, kSigmoid };
enum class GroupScoreKind : int32_t { kMax, kTopTwoSum };

/// One token's choice of experts, as RouterOptions defines it.
struct RouteArgs {
  const float* logits;
  const float* correction_bias;  // [experts] or null
  const float* expert_scale;     // [experts] or null
  int64_t experts;
  int64_t groups;
  int64_t groups_kept;
  int64_t top_k;
  int32_t* ids;
  float* weights;
  float* workspace;  // 3 x [experts rounded up to 16]
  RouterScoreKind score;
  GroupScoreKind group_score;
  bool normalize;
  float normalize_epsilon;
  float scale;
};

/// One token's heads; cosines and sines [rotary_dim / 2] of its position.
struct RopeArgs {
  float* x;
  int64_t head_stride;
  int64_t heads;
  const float* cosines;
  const float* sines;
  int64_t rotary_dim;
  bool interleaved;
};

/// One instruction set's implementation of everything. Constant data.
struct KernelTable {
  const char* name;
  void (*matmul)(const MatmulArgs& args);
  void (*glu_matmul)(const GluMatmulArgs& args);
  void (*transposed_matmul)(const TransposedMatmulArgs& args);
  /// Reorders x[cols] the way 4-bit codes are decoded; cols is a multiple of 32.
  void (*permute)(const float* x, int64_t cols, float* out);
  void (*attention)(const AttentionArgs& args);
  void (*gated_delta)(const GatedDeltaArgs& args);
  void (*causal_conv)(const CausalConvArgs& args);
  void (*route)(const RouteArgs& args);
  void (*rope)(const RopeArgs& args);
  /// weight may be null.
  void (*rms_norm)(float* out, const float* x, const float* weight, int64_t n, float eps);
  void (*add)(float* out, const float* a, const float* b, int64_t n);
  void (*scale)(float* out, const float* x, float factor, int64_t n);
  /// x = cap * tanh(x / cap).
  void (*soft_cap)(float* x, float cap, int64_t n);
  void (*glu)(float* out, const float* gate, const float* up, int64_t n, const GluArgs& args);
  /// out = x * activation(gate); gate_step 0 uses gate[0] for the whole row.
  void (*mul_activated)(float* out, const float* x, const float* gate, int64_t gate_step, int64_t n,
                        ActivationKind activation);
  /// out = sum over r of weights[r] * rows[r * stride ...], in order.
  void (*weighted_sum)(float* out, const float* rows, int64_t stride, const float* weights,
                       int64_t count, int64_t n);
  /// out = e^x: the approximation the others are built on, for its own test.
  void (*exp)(float* out, const float* x, int64_t n);
};

extern const KernelTable kGenericKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

}  // namespace moeflux::cpu
