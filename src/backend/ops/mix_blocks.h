// Attention of a token to the states that it had behind blocks of layers.
#pragma once

#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux {

/// How states are scored and summed.
struct BlockMix {
  float scale = 1.0f;  // of scores
  float eps = 0.0f;    // of norms
  /// The sum is one of normed states.
  bool sums_normed = false;
};

namespace ops {

/// out[t] = the sum over a token's states s of softmax(scale * (query . norm(s))) * s, where norm
/// is that of RMS without weights. The states are blocks[b, t] in order, then last[t]. blocks f32
/// [count, n, cols] and last [n, cols], contiguous; query f32 [cols]; out [n, cols], contiguous and
/// apart from the others.
struct MixBlocks {
  static constexpr std::string_view kName = "mix_blocks";
  Tensor out;
  Tensor blocks;
  Tensor last;
  Tensor query;
  BlockMix options;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kWrite, "out", out);
    visit(Use::kRead, "blocks", blocks);
    visit(Use::kRead, "last", last);
    visit(Use::kRead, "query", query);
  }
};

}  // namespace ops
}  // namespace moeflux
