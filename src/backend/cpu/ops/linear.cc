#include "backend/ops/linear.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::Linear& op) {
  const RowsView to(op.out);
  if (to.rows == 0 || to.cols == 0) return;
  if (context.weights.uses_tiles(op.weight)) return context.pending.add(op);
  context.pending.flush();
  context.rows.multiply_heads(to, RowsView(op.x), op.weight, {.rows_per_head = to.cols}, 1);
}

}  // namespace moeflux::cpu
