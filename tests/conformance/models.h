// The stateful ops as small problems that can be run at once or token by token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/conformance/support.h"

namespace moeflux::conformance {

/// Lengths of the calls a sequence is cut into: {7} is one call, {1, 1, 5} three.
using Chunks = std::vector<int64_t>;
int64_t total(const Chunks& chunks);
/// `n` calls of one token.
Chunks one_by_one(int64_t n);

struct AttentionProblem {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 32;
  int64_t v_head_dim = 32;
  int64_t page_tokens = 16;
  int64_t n = 1;
  std::vector<float> q, k, v;
  int64_t window = 0;              // with one, pages are the smallest ring that the calls allow
  bool chunked = false;            // the window begins at its multiples
  std::vector<float> sinks = {};   // [heads], [n, heads] or empty
  int64_t bias_extent = 0;         // 0: no biases by distance
  std::vector<float> biases = {};  // [n, heads, bias_extent]
  bool values_are_keys = false;    // values are the first v_head_dim elements of keys, v is null
  DType k_type = DType::kF32;      // of pages
  DType v_type = DType::kF32;
  bool has_mixed_cache() const { return k_type != v_type && !values_are_keys; }
  bool has_narrow_cache() const { return k_type != DType::kF32 || v_type != DType::kF32; }

  static AttentionProblem make(Random& random, int64_t heads, int64_t kv_heads, int64_t head_dim,
                               int64_t v_head_dim, int64_t page_tokens, int64_t n);
  /// Gives each token biases up to that distance, and sinks of its own.
  void add_biases(Random& random, int64_t extent);
  bool has_own_sinks() const { return static_cast<int64_t>(sinks.size()) > heads; }
  /// out [n, heads, v_head_dim] of all calls, in order.
  std::vector<float> run(Session& session, const Chunks& chunks) const;
  /// A page of zeros, of heads of `dim` numbers.
  Tensor page(Session& session, int64_t dim, DType type) const;
};

/// Products of each head with its own rows, from and to slices of wider tensors.
struct HeadProblem {
  EncodedWeight weight;
  HeadRows rows;
  int64_t heads = 1;
  int64_t n = 1;
  bool transposed = false;
  std::vector<float> x;  // [n, heads, in_width() + kGap]

  static constexpr int64_t kGap = 3;  // elements of a row that do not take part
  static HeadProblem make(Random& random, const QuantFormat& format, const HeadRows& rows,
                          int64_t heads, int64_t cols, int64_t n, bool transposed);
  int64_t in_width() const { return transposed ? rows.rows_per_head : weight.cols; }
  int64_t out_width() const { return transposed ? weight.cols : rows.rows_per_head; }
  /// out [n, heads, out_width() + kGap] of all calls.
  std::vector<float> run(Session& session, const Chunks& chunks) const;
};

/// A gated unit in f64, as GluOptions defines it.
double gated_unit(double gate, double up, const GluOptions& options);

struct ConvProblem {
  int64_t channels = 1;
  int64_t taps = 4;
  int64_t n = 1;
  std::vector<float> x, weight, state;
  Activation activation = Activation::kSilu;
  std::vector<float> bias = {};  // [channels] or empty

  static ConvProblem make(Random& random, int64_t channels, int64_t taps, int64_t n);
  /// out [n, channels], then the final state.
  std::vector<float> run(Session& session, const Chunks& chunks) const;
};

struct TokenConvProblem {
  static constexpr int64_t kGroups = 3;
  int64_t channels = 3;
  int64_t taps = 4;
  int64_t n = 1;
  std::vector<float> x, weight, shares, state;

  static TokenConvProblem make(Random& random, int64_t channels, int64_t taps, int64_t n);
  /// out [n, channels], then the final state.
  std::vector<float> run(Session& session, const Chunks& chunks) const;
};

struct DeltaProblem {
  GatedDeltaOptions options;
  int64_t n = 1;
  std::vector<float> qkv, a, b, a_log, dt_bias, state;

  static DeltaProblem make(Random& random, const GatedDeltaOptions& options, int64_t n);
  /// out [n, value_heads, value_dim], then the final state.
  std::vector<float> run(Session& session, const Chunks& chunks) const;
};

struct ScanProblem {
  ScanOptions options;
  int64_t n = 1;
  std::vector<float> xbc, dt, a_log, dt_bias, skip, state;

  static ScanProblem make(Random& random, const ScanOptions& options, int64_t n);
  ScanWeights weights(Session& session) const;
  /// out [n, heads, head_dim], then the final state.
  std::vector<float> run(Session& session, const Chunks& chunks) const;
};

struct MoeSizes {
  int64_t hidden = 64;
  int64_t intermediate = 64;
  int64_t experts = 4;
  int64_t top_k = 2;
  int64_t n = 1;
};

struct MoeProblem : MoeSizes {
  std::vector<EncodedWeight> gate, up, down;
  std::vector<EncodedWeight> gate_bias, up_bias, down_bias;  // one row per expert, or empty
  GluOptions glu = {};
  std::vector<float> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  static MoeProblem make(Random& random, const QuantFormat& format, const MoeSizes& sizes);
  void add_biases(Random& random, DType dtype);
  /// slots [n, top_k, hidden], then combined [n, hidden]. Experts become ready in these waves.
  std::vector<float> run(Session& session, const std::vector<std::vector<int32_t>>& waves) const;
  std::vector<float> run_tokens(Session& session, int64_t begin, int64_t count,
                                const std::vector<std::vector<int32_t>>& waves) const;
  std::vector<std::vector<int32_t>> all_at_once() const;
};

/// Each token's slots have the bits that they have alone, on one device of each family.
void check_token_invariance(const std::string& what, const MoeProblem& problem);

/// x[n, cols] times the transpose of a matrix [rows, cols].
struct LinearProblem {
  int64_t n;
  int64_t rows;
  int64_t cols;
};
/// A product of random numbers on every device against the reference; `op` is its row of the
/// matrix.
void check_linear(const std::string& op, Random& random, const QuantFormat& format,
                  const LinearProblem& p);

}  // namespace moeflux::conformance
