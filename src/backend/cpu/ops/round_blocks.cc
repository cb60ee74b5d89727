#include "backend/ops/round_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {
namespace {

using f32 = float;
using u32 = uint32_t;

u32 as_bits(f32 x) { return std::bit_cast<u32>(x); }
f32 as_float(u32 bits) { return std::bit_cast<f32>(bits); }
f32 real_round(f32 x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

#define MF_FN inline
#include "backend/round_text.h"
#undef MF_FN

}  // namespace

void run(CpuContext& context, const ops::RoundBlocks& op) {
  const RowsView rows(op.x);
  const int64_t block = rounded_columns(op.to);
  const auto format = static_cast<u32>(op.to);
  context.workers.for_tasks(rows.rows, 8 * rows.rows * rows.cols, [&](int64_t r) {
    for (int64_t begin = 0; begin < rows.cols; begin += block) {
      float* x = rows.row(r) + begin;
      float most = 0.0f;
      for (int64_t c = 0; c < block; ++c) most = std::max(most, std::abs(x[c]));
      const float scale = rounded_scale(most, format);
      for (int64_t c = 0; c < block; ++c) x[c] = rounded_number(x[c], scale, format);
    }
  });
}

}  // namespace moeflux::cpu
