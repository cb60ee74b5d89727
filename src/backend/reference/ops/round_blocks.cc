// Blocks rounded to a format of few bits, as its formula reads.
#include <algorithm>
#include <cmath>

#include "backend/reference/cells.h"

namespace moeflux::reference {
namespace {

/// x on the grid with that many bits behind the leading one, and no smaller step than that of the
/// exponent `least`.
double on_grid(double x, int bits, int least) {
  if (x == 0.0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), least);
  const double step = std::ldexp(1.0, exponent - bits);
  return std::nearbyint(x / step) * step;
}

double e4m3(double x) { return on_grid(x, 3, -6); }
double e2m1(double x) { return on_grid(x, 1, 0); }

/// In f32 as publishers compute it: a block's largest number is multiplied by a rounded factor.
float scale_of(float most, BlockRounding to) {
  const auto power_above = [](float x) {
    return static_cast<float>(std::exp2(std::ceil(std::log2(x))));
  };
  switch (to) {
    case BlockRounding::kE4m3:
      return power_above(std::max(most, 1e-4f) * (1.0f / 448.0f));
    case BlockRounding::kE2m1:
      return power_above(std::max(most, 6.0f * 0x1p-126f) * (1.0f / 6.0f));
    case BlockRounding::kE2m1E4m3:
      return static_cast<float>(e4m3(std::clamp(most * (1.0f / 6.0f), 0x1p-9f, 448.0f)));
  }
  __builtin_unreachable();
}

}  // namespace

void run(Reference& /*reference*/, const ops::RoundBlocks& op) {
  const RowsView rows(op.x);
  const int64_t block = rounded_columns(op.to);
  const bool is_e4m3 = op.to == BlockRounding::kE4m3;
  const float limit = is_e4m3 ? 448.0f : 6.0f;
  for (int64_t r = 0; r < rows.rows; ++r) {
    for (int64_t begin = 0; begin < rows.cols; begin += block) {
      float* x = rows.row(r) + begin;
      float most = 0.0f;
      for (int64_t c = 0; c < block; ++c) most = std::max(most, std::abs(x[c]));
      const float scale = scale_of(most, op.to);
      for (int64_t c = 0; c < block; ++c) {
        const float quotient = std::clamp(x[c] / scale, -limit, limit);
        x[c] = static_cast<float>((is_e4m3 ? e4m3(quotient) : e2m1(quotient)) * scale);
      }
    }
  }
}

}  // namespace moeflux::reference
