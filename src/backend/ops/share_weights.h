// The weights of chosen experts and of those that every token has.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux::ops {

/// A token's chosen experts, whose scores `weights` holds, share `scale` with experts that every
/// token has, whose scores are sigmoid(logits): each gets scale * score / the sum of all its
/// token's scores. weights f32 [n, top_k], contiguous, updated; logits f32 [n, shared], out f32 [n,
/// shared], contiguous.
struct ShareWeights {
  static constexpr std::string_view kName = "share_weights";
  Tensor out;
  Tensor weights;
  Tensor logits;
  float scale = 1.0f;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kUpdate, "weights", weights);
    visit(Use::kRead, "logits", logits);
  }
};

}  // namespace moeflux::ops
