// Depthwise causal convolution.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backend/activation.h"
#include "backend/operation.h"
#include "backend/sequence_rows.h"

namespace moeflux {

struct ConvOptions {
  Activation activation = Activation::kSilu;  // kSilu or kIdentity
  Tensor bias = {};                           // f32 [channels] or null: added before it
};

namespace ops {

/// Depthwise causal convolution, then SiLU or nothing (kIdentity). x, out [n, channels]; weight f32
/// [channels, kernel], the last tap multiplies the current token; a sequence's state f32 [kernel -
/// 1, channels] holds the inputs before its first row and is updated.
struct CausalConv {
  static constexpr std::string_view kName = "causal_conv";
  Tensor out;
  Tensor x;
  Tensor weight;
  ConvOptions options;
  std::span<const StateRows> sequences;

  Status check() const;
  std::string text() const;
  int64_t rows() const { return x.dim(0); }
  /// Sequence number i alone: part(x) gives its rows of x.
  template <typename Part>
  CausalConv part(size_t i, const Part& part) const {
    return {part(out), part(x), weight, options, sequences.subspan(i, 1)};
  }
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "x", x);
    visit(Use::kRead, "weight", weight);
    visit_if(visit, Use::kRead, "bias", options.bias);
    for (const StateRows& s : sequences) visit(Use::kUpdate, "state", s.state);
  }
};

}  // namespace ops
}  // namespace moeflux
