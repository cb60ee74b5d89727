// Depthwise causal convolution whose taps depend on the token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/operation.h"
#include "backend/sequence_rows.h"
#include "base/format.h"

namespace moeflux::ops {

/// out[t, c] = the sum over j of (weight[j, c] + shares[t, c / (channels / groups), j]) * x[t - j,
/// c]. x, out [n, channels]; weight f32 [taps, channels], contiguous; shares [n, groups, taps],
/// contiguous; groups divide channels. A sequence's state f32 [taps - 1, channels] holds the inputs
/// before its first row, the oldest first, and is updated.
struct TokenConv {
  static constexpr std::string_view kName = "token_conv";
  Tensor out;
  Tensor x;
  Tensor weight;
  Tensor shares;
  std::span<const StateRows> sequences;

  Status check() const {
    Conditions c(kName);
    c.is_float("x", x).equal("extents of x", x.shape.rank(), 2);
    c.equal("extents of weight", weight.shape.rank(), 2);
    c.equal("extents of shares", shares.shape.rank(), 3);
    if (!c.status()) return c.status();
    const int64_t channels = x.dim(1);
    c.is("out", out, x.shape)
        .is_packed("weight", weight, {weight.dim(0), channels})
        .holds("weight", weight, weight.dim(0) >= 2, "two taps")
        .is_packed("shares", shares, {x.dim(0), shares.dim(1), weight.dim(0)})
        .holds("shares", shares, shares.dim(1) > 0 && channels % shares.dim(1) == 0,
               "groups that divide channels")
        .holds("out", !have_overlap(out, x), "apart from x");
    int64_t rows = 0;
    for (const StateRows& s : sequences) {
      rows += s.rows;
      c.is_packed("state", s.state, {weight.dim(0) - 1, channels});
    }
    return c.equal("rows of sequences", rows, x.dim(0)).status();
  }
  std::string text() const {
    return formatted("token_conv {} taps {} groups {}", out.shape.to_string(), weight.dim(0),
                     shares.dim(1));
  }
  int64_t rows() const { return x.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  TokenConv part(size_t i, const Part& part) const {
    return {part(out), part(x), weight, part(shares), sequences.subspan(i, 1)};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "weight", weight);
    visit(Use::kRead, "shares", shares);
    for (const StateRows& s : sequences) visit(Use::kUpdate, "state", s.state);
  }
};

}  // namespace moeflux::ops
