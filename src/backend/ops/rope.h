// Rotary positions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backend/operation.h"

namespace moeflux {

struct RopeOptions {
  int64_t rotary_dim = 0;  // the first rotary_dim elements of a head rotate, the rest pass through
  bool interleaved = false;       // pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
  float attention_factor = 1.0f;  // multiplies cos and sin (YaRN)
  int64_t unit = 1;               // heads turn by the last position that is a multiple of it

  bool operator==(const RopeOptions&) const = default;
};

namespace ops {

/// Rotates x [n, heads, head_dim] in place. positions i32 [n]; inverse_frequencies f32 [rotary_dim
/// / 2].
struct Rope {
  static constexpr std::string_view kName = "rope";
  Tensor x;
  Tensor positions;
  Tensor inverse_frequencies;
  RopeOptions options;

  Status check() const;
  std::string text() const;
  template <typename Visit>
  void operands(Visit&& visit) const {
    visit(Use::kUpdate, "x", x);
    visit(Use::kRead, "positions", positions);
    visit_if(visit, Use::kRead, "inverse_frequencies", inverse_frequencies);
  }
};

}  // namespace ops
}  // namespace moeflux
