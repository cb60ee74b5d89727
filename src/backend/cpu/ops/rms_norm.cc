#include "backend/ops/rms_norm.h"

#include <algorithm>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::RmsNorm& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const float* weight = floats_or_null(op.weight);
  const int64_t weights =
      op.weight.is_null() ? 1 : op.weight.num_elements() / std::max<int64_t>(1, to.cols);
  context.workers.for_rows(to.rows, to.cols, [&](int64_t r) {
    const float* own = weights == 1 ? weight : weight + r % weights * to.cols;
    context.kernels.rms_norm(to.row(r), from.row(r), own, to.cols, op.eps);
  });
}

}  // namespace moeflux::cpu
