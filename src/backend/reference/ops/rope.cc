// Rotary positions, as its formula reads.
#include <cmath>

#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::Rope& op) {
  const RowsView heads(op.x);
  const int64_t half = op.options.rotary_dim / 2;
  const int32_t* position = host_ptr<int32_t>(op.positions);
  const float* frequencies = host_ptr<float>(op.inverse_frequencies);
  for (int64_t r = 0; r < heads.rows; ++r) {
    float* head = heads.row(r);
    for (int64_t i = 0; i < half; ++i) {
      // The angle is rounded to f32, as the reference implementations compute it: at position 10^5
      // that is visible.
      const int64_t at = position[r / op.x.dim(1)] / op.options.unit * op.options.unit;
      const float angle = static_cast<float>(at) * frequencies[i];
      const double cosine = std::cos(static_cast<double>(angle)) * op.options.attention_factor;
      const double sine = std::sin(static_cast<double>(angle)) * op.options.attention_factor;
      float& a = head[op.options.interleaved ? 2 * i : i];
      float& b = head[op.options.interleaved ? 2 * i + 1 : i + half];
      const double a0 = a;
      const double b0 = b;
      a = static_cast<float>(a0 * cosine - b0 * sine);
      b = static_cast<float>(b0 * cosine + a0 * sine);
    }
  }
}

}  // namespace moeflux::reference
