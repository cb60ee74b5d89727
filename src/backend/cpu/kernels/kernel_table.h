// Arguments of the per-ISA kernels and the table they are called through. Plain data only: this
// header is compiled with several instruction sets, so it may hold no inline code that a linker
// could share.
#pragma once

#include <cstdint>

namespace moeflux::cpu {

enum class ElementType : int32_t { kF32, kF16, kBf16 };

/// Element types of keys and values in the KV cache.
enum class CachedType : int32_t {
  kF32,
  kF16,
  kQ8,  // rows of quant/q8_rows.h
};

/// How numbers are made of codes.
enum class CodeKind : int32_t {
  kPlain,   // they are what is stored
  kAffine,  // MLX's groups
  kFp8,     // quant/formats/fp8_format.cc
  kMxfp4,   // quant/formats/mxfp4_format.cc
  kNvfp4,   // quant/formats/nvfp4_format.cc
};

/// A weight matrix as stored.
struct MatrixArgs {
  const uint8_t* data;
  const uint8_t* scales;
  const uint8_t* biases;
  int64_t rows;
  int64_t cols;
  ElementType type;  // of the elements (plain) or of scales and biases
  CodeKind kind;
  int32_t bits;           // affine
  int32_t group_size;     // affine; columns that share a scale, 0: all
  int32_t group_rows;     // rows that share scales, 0: all
  bool has_power_scales;  // of a byte, whatever `type` says
  float outer_scale;      // nvfp4
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
  const float* const* x;  // per token; in permuted order where is_permuted(w)
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

enum class ActivationKind : int32_t {
  kSilu,
  kSigmoid,
  kGeluTanh,
  kIdentity,
  kRelu,
  kCappedSilu,
  kSoftplus,
  kSoftCapped,
  kGelu
};

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
  const float* const* x_gate;  // per token; in permuted order where is_permuted(gate)
  const float* const* x_up;
  float* const* out;
  int64_t tokens;
  int64_t row_begin;
  int64_t row_end;
  GluArgs glu;
};

/// Attention is computed for tiles of rows: some heads of one kv head of some tokens, the heads of
/// a token side by side. Positions are cut at multiples of kAttentionSegment; what a row computes
/// over one segment does not depend on the others, and segments are folded in order.
constexpr int64_t kAttentionRowsMax = 64;
constexpr int64_t kAttentionSegment = 512;

/// The results over one segment: `largest` score and `total` of e^(score - largest) of every row (0
/// where a row sees nothing of the segment), then the sums of values those weigh.
struct AttentionPart {
  float* largest;      // [rows]
  float* total;        // [rows]
  float* out;          // [rows, out_stride], on a cache line border
  int64_t out_stride;  // v_head_dim rounded up to a multiple of 16
};

/// A tile over the positions of one segment.
struct AttentionArgs {
  const float* q;
  int64_t q_token_stride;
  int64_t q_stride;  // between heads
  int64_t tokens;
  int64_t heads;     // of a token; tokens * heads <= kAttentionRowsMax
  int64_t position;  // of the first token
  int64_t window;    // positions a token sees up to its own; 0: all
  bool chunked;      // those from a multiple of `window` on
  int64_t begin;     // the segment, of which a token sees what is not behind it
  int64_t end;
  const uint8_t* const* k_pages;  // position t lies in page (t / page_tokens) % pages
  const uint8_t* const* v_pages;
  CachedType k_type;
  CachedType v_type;
  int64_t k_scales;  // kQ8: bytes from the beginning of a row to its scales
  int64_t v_scales;
  int64_t pages;
  int64_t page_tokens;
  int64_t k_stride;  // bytes between positions of a page
  int64_t v_stride;
  int64_t kv_head_k_offset;  // bytes
  int64_t kv_head_v_offset;
  int64_t head_dim;
  int64_t v_head_dim;
  float scale;
  const float* bias;    // of the first row, by the distance from its query back to the key; or null
  int64_t bias_extent;  // numbers of a row; keys farther back have none
  int64_t bias_stride;  // between tokens; heads are bias_extent apart
  float* workspace;     // [head_dim rounded up to 16, kAttentionPanelKeys], on a cache line border
  AttentionPart part;
};
/// Keys the kernel's workspace has room for at once.
constexpr int64_t kAttentionPanelKeys = 32;

/// Adds one segment of a tile to what was folded before it.
struct AttentionFoldArgs {
  float* out;
  int64_t out_token_stride;
  int64_t out_stride;  // between heads
  int64_t tokens;
  int64_t heads;
  int64_t v_head_dim;
  const float* sinks;   // [heads] of each token, or null
  int64_t sink_stride;  // between tokens; 0: the same for all
  AttentionPart part;
  float* largest;  // [rows], carried from segment to segment
  float* total;
  bool is_first;
  bool is_last;
};

/// Columns of a state that are worth a task of many tokens.
constexpr int64_t kDeltaColumns = 64;

/// How a head's state S goes on: S = decay S + k delta^T, out = S^T q.
enum class StateRule : int32_t {
  kDelta,     // delta = beta (v - decay S^T k)
  kRowDelta,  // the same with a decay of its own for each row of S
  kScan,      // delta = beta v, and skip v is added to out
};

/// The columns [begin, end) of one head's state over n tokens. Columns are independent.
struct RecurrenceArgs {
  StateRule rule;
  const float* q;  // of the head, normalised for the delta rules
  const float* k;
  const float* decays;  // kRowDelta: of the rows
  const float* recall;  // kRowDelta: k times these
  int64_t key_stride;   // of the four, between tokens
  const float* v;       // of the head, from column 0
  int64_t v_stride;     // between tokens
  float* out;
  int64_t out_stride;
  const float* decay;  // [n], but for kRowDelta
  const float* beta;   // [n]
  float skip;          // kScan
  float* state;        // [key_dim, value_dim]
  int64_t n;
  int64_t key_dim;
  int64_t value_dim;
  int64_t begin;
  int64_t end;
  float* workspace;  // [key_dim, kDeltaColumns], on a cache line border; may be null when n is 1
};

/// Arguments of a kernel that computes the decay of a state's rows, and a key times that.
struct RowDecayArgs {
  const float* a;
  const float* bias;
  const float* k;
  float rate;   // e^a_log
  float bound;  // of a logarithm; 0: none
  int64_t n;
  float* decays;
  float* recall;
};

/// Channels [begin, end) of a depthwise convolution over n tokens.
struct CausalConvArgs {
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  const float* weight;  // [channels, taps]
  const float* bias;    // [channels] or null
  float* state;         // [taps - 1, channels]
  int64_t channels;
  int64_t taps;
  ActivationKind activation;
  int64_t n;
  int64_t begin;
  int64_t end;
};

/// A token's streams, as expand_streams() defines them.
struct ExpandArgs {
  const float* x;       // [streams, n]
  const float* branch;  // [n]
  const float* write;   // [streams]
  const float* mix;     // [streams, streams]; null: none mixes with another
  int64_t streams;
  int64_t n;
  float* out;  // [streams, n]
};

enum class RouterScoreKind : int32_t { kSoftmax, kSigmoid, kSqrtSoftplus };
enum class GroupScoreKind : int32_t { kMax, kTopTwoSum };

/// One token's choice of experts, as RouterOptions defines it.
struct RouteArgs {
  const float* logits;
  const float* correction_bias;  // [experts] or null
  const float* expert_scale;     // [experts] or null
  const int32_t* listed;         // [top_k], the token's experts; null: by their scores
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
  float normalize_least;
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
  void (*attention_fold)(const AttentionFoldArgs& args);
  void (*recurrence)(const RecurrenceArgs& args);
  void (*row_decays)(const RowDecayArgs& args);
  /// out = x / sqrt(sum of x^2 + 1e-6) * scale.
  void (*l2_normalize)(float* out, const float* x, int64_t n, float scale);
  void (*causal_conv)(const CausalConvArgs& args);
  void (*route)(const RouteArgs& args);
  void (*rope)(const RopeArgs& args);
  /// weight may be null.
  void (*rms_norm)(float* out, const float* x, const float* weight, int64_t n, float eps);
  void (*add)(float* out, const float* a, const float* b, int64_t n);
  void (*scale)(float* out, const float* x, float factor, int64_t n);
  /// out[n] in f16, rounded to nearest even.
  void (*to_f16)(uint8_t* out, const float* x, int64_t n);
  /// A row of quant/q8_rows.h from its n numbers.
  void (*to_q8)(uint8_t* row, const float* x, int64_t n);
  /// x = cap * tanh(x / cap).
  void (*soft_cap)(float* x, float cap, int64_t n);
  void (*glu)(float* out, const float* gate, const float* up, int64_t n, const GluArgs& args);
  /// The same with multiply-adds that round once everywhere: the bits of GPU kernels.
  void (*glu_fused)(float* out, const float* gate, const float* up, int64_t n, const GluArgs& args);
  /// out = x * activation(gate); gate_step 0 uses gate[0] for the whole row.
  void (*mul_activated)(float* out, const float* x, const float* gate, int64_t gate_step, int64_t n,
                        ActivationKind activation);
  /// out = sum over r of weights[r] * rows[r * stride ...], in order.
  void (*weighted_sum)(float* out, const float* rows, int64_t stride, const float* weights,
                       int64_t count, int64_t n);
  void (*expand_streams)(const ExpandArgs& args);
  /// out = sum over r of x[r * n ...] * sigmoid(gates[r * n ...]), in order.
  void (*sum_gated)(float* out, const float* x, const float* gates, int64_t count, int64_t n);
  float (*dot)(const float* a, const float* b, int64_t n);
  /// out = e^x: the approximation the others are built on, for its own test.
  void (*exp)(float* out, const float* x, int64_t n);
};

extern const KernelTable kGenericKernels;
extern const KernelTable kAvx2Kernels;
extern const KernelTable kAvx512Kernels;
extern const KernelTable kNeonKernels;

}  // namespace moeflux::cpu
