#include "backend/ops/head_linear.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::HeadLinear& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  if (from.rows == 0 || to.cols == 0) return;
  context.rows.multiply_heads(to, from, op.weight, op.rows, op.x.dim(1));
}

}  // namespace moeflux::cpu
