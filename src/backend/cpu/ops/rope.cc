#include "backend/ops/rope.h"

#include "backend/cpu/cpu_context.h"
#include "base/portable_math.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::Rope& op) {
  const RowsView rows(op.x);
  const RopeOptions& options = op.options;
  const int64_t half = options.rotary_dim / 2;
  const int64_t n = op.x.dim(0);
  const int64_t heads = op.x.dim(1);
  if (n == 0 || heads == 0 || half == 0) return;
  const int32_t* position = host_ptr<int32_t>(op.positions);
  const float* frequencies = host_ptr<float>(op.inverse_frequencies);
  float* space = context.spaces.floats(n * 2 * half);
  context.workers.for_tasks(n, n * (heads * rows.cols + 16 * half), [&](int64_t t) {
    float* cosines = space + t * 2 * half;
    float* sines = cosines + half;
    const int64_t at = position[t] / options.unit * options.unit;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(at) * frequencies[i];
      const SineAndCosine of = portable_sin_cos(angle);
      cosines[i] = static_cast<float>(of.cosine) * options.attention_factor;
      sines[i] = static_cast<float>(of.sine) * options.attention_factor;
    }
    context.kernels.rope({.x = rows.row(t * heads),
                          .head_stride = op.x.strides[1],
                          .heads = heads,
                          .cosines = cosines,
                          .sines = sines,
                          .rotary_dim = options.rotary_dim,
                          .interleaved = options.interleaved});
  });
}

}  // namespace moeflux::cpu
