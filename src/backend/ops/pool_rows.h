// Rows of tokens pooled.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/sequence_rows.h"

namespace moeflux {

/// By what pool_rows() weighs tokens.
struct PoolGates {
  Tensor gate = {};  // f32 [n, cols], or null: all weigh the same
  Tensor bias = {};  // f32 [unit, cols], with a gate
  /// With a gate: a row has two halves, and a pool also has the tokens of the pool before. The
  /// first halves of these count, and the second ones of its own tokens.
  bool overlaps = false;

  /// Rows of a sequence's state.
  int64_t kept_rows(int64_t unit) const { return overlaps ? 2 * unit : unit - 1; }
};
/// Tokens of a pool, at most.
constexpr int64_t kPoolMax = 128;

namespace ops {

/// Pools the tokens [p - p % unit, p] of a row's sequence, p being its position. A column sums x[s]
/// times the softmax over these s of gate[s] + bias[s % unit]; without a gate it is their mean. x,
/// gate, out [n, cols] contiguous; bias f32 [unit, cols]; positions i32 [n]. Row j of a sequence's
/// state f32 [unit - 1, 2 * cols] holds x | gate of the last token at a position that is j modulo
/// unit, and is updated; without a gate it is [unit - 1, cols]. Pools that overlap: out is [n, cols
/// / 2], and the state [2 * unit, 2 * cols] of the last tokens at positions modulo 2 * unit.
struct PoolRows {
  static constexpr std::string_view kName = "pool_rows";
  Tensor out;
  Tensor x;
  PoolGates gates;
  Tensor positions;
  std::span<const StateRows> sequences;
  int64_t unit = 0;

  Status check() const;
  std::string text() const;
  int64_t rows() const { return x.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  PoolRows part(size_t i, const Part& part) const {
    return {part(out),
            part(x),
            {part(gates.gate), gates.bias, gates.overlaps},
            part(positions),
            sequences.subspan(i, 1),
            unit};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit_if(visit, Use::kRead, "gate", gates.gate);
    visit_if(visit, Use::kRead, "bias", gates.bias);
    visit(Use::kRead, "positions", positions);
    for (const StateRows& s : sequences) visit(Use::kUpdate, "state", s.state);
  }
};

}  // namespace ops
}  // namespace moeflux
