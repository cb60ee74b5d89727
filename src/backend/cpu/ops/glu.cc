#include "backend/ops/glu.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::Glu& op) {
  const RowsView to(op.out);
  const RowsView gates(op.gate);
  const RowsView ups(op.up);
  const GluArgs unit = glu_args(op.options);
  context.workers.for_rows(to.rows, 4 * to.cols, [&](int64_t r) {
    context.gated_unit(to.row(r), gates.row(r), ups.row(r), to.cols, unit);
  });
}

}  // namespace moeflux::cpu
