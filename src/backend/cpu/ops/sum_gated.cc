#include "backend/ops/sum_gated.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::SumGated& op) {
  const RowsView to(op.out);
  const int64_t streams = op.x.dim(1);
  context.workers.for_tasks(to.rows, 4 * to.rows * to.cols * streams, [&](int64_t t) {
    const int64_t at = t * streams * to.cols;
    context.kernels.sum_gated(to.row(t), host_ptr<float>(op.x) + at, host_ptr<float>(op.gates) + at,
                              streams, to.cols);
  });
}

}  // namespace moeflux::cpu
