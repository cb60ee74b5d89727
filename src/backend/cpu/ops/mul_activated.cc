#include "backend/ops/mul_activated.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::MulActivated& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const RowsView gates(op.gate);
  const ActivationKind kind = kernel_activation(op.activation);
  const int64_t gate_step = gates.cols == 1 ? 0 : 1;
  context.workers.for_rows(to.rows, 4 * to.cols, [&](int64_t r) {
    context.kernels.mul_activated(to.row(r), from.row(r), gates.row(r), gate_step, to.cols, kind);
  });
}

}  // namespace moeflux::cpu
