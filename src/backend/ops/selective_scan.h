// Mamba-2's selective scan.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/sequence_rows.h"

namespace moeflux {

/// Weights of each head of a selective scan, f32 [heads].
struct ScanWeights {
  Tensor a_log;
  Tensor dt_bias;
  Tensor skip;
};

struct ScanOptions {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t groups = 0;  // of heads side by side that share B and C; divides heads
  int64_t state_dim = 0;

  int64_t group_of(int64_t head) const { return head / (heads / groups); }
  /// Numbers of a row of x | B | C.
  int64_t row_width() const { return heads * head_dim + 2 * groups * state_dim; }
};

namespace ops {

/// Mamba-2's selective scan over each sequence's tokens in order. xbc [n, options.row_width()]
/// holds x | B | C after the convolution; dt [n, heads]; a_log, dt_bias, skip f32 [heads]; step =
/// softplus(dt + dt_bias). Per head h, with B and C of group options.group_of(h):
///   S = exp(-exp(a_log) * step) * S + B (step * x)^T;  out = S^T C + skip * x.
/// out [n, heads, head_dim]; states f32 [heads, state_dim, head_dim] are updated.
struct SelectiveScan {
  static constexpr std::string_view kName = "selective_scan";
  Tensor out;
  Tensor xbc;
  Tensor dt;
  ScanWeights weights;
  std::span<const StateRows> sequences;
  ScanOptions options;

  Status check() const;
  Cost cost() const;
  std::string text() const;
  int64_t rows() const { return xbc.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  SelectiveScan part(size_t i, const Part& part) const {
    return {part(out), part(xbc), part(dt), weights, sequences.subspan(i, 1), options};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "xbc", xbc);
    visit(Use::kRead, "dt", dt);
    visit(Use::kRead, "a_log", weights.a_log);
    visit(Use::kRead, "dt_bias", weights.dt_bias);
    visit(Use::kRead, "skip", weights.skip);
    for (const StateRows& s : sequences) visit(Use::kUpdate, "state", s.state);
  }
};

}  // namespace ops
}  // namespace moeflux
