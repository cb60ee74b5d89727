#include "backend/ops/root_dots.h"

#include <cmath>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::RootDots& op) {
  const RowsView left(op.a);
  const RowsView right(op.b);
  float* to = host_ptr<float>(op.out);
  context.workers.for_tasks(left.rows, left.rows * left.cols, [&](int64_t r) {
    const float dot = context.kernels.dot(left.row(r), right.row(r), left.cols) * op.options.scale;
    const float size = std::abs(dot);
    const float root = std::sqrt(size < op.options.least ? op.options.least : size);
    to[r] = dot < 0.0f ? -root : dot == 0.0f ? 0.0f : root;
  });
}

}  // namespace moeflux::cpu
