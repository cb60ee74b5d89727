// Running sums of the rows of sequences.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/sequence_rows.h"

namespace moeflux::ops {

/// state[c] = state[c] + x[t, c] for each sequence's tokens t in order. Mean pooling over a
/// text divides it. x [n, cols]; a sequence's state f32 [cols] is updated.
struct SumRows {
  static constexpr std::string_view kName = "sum_rows";
  Tensor x;
  std::span<const StateRows> sequences;

  Status check() const;
  std::string text() const;
  int64_t rows() const { return x.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  SumRows part(size_t i, const Part& part) const {
    return {part(x), sequences.subspan(i, 1)};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kRead, "x", x);
    for (const StateRows& s : sequences) visit(Use::kUpdate, "state", s.state);
  }
};

}  // namespace moeflux::ops
