#include "backend/ops/scale.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::Scale& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  context.workers.for_rows(to.rows, to.cols, [&](int64_t r) {
    context.kernels.scale(to.row(r), from.row(r), op.factor, to.cols);
  });
}

}  // namespace moeflux::cpu
