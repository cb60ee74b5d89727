#include "backend/ops/add.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::Add& op) {
  const RowsView to(op.out);
  const RowsView a(op.a);
  const RowsView b(op.b);
  context.workers.for_rows(to.rows, to.cols, [&](int64_t r) {
    context.kernels.add(to.row(r), a.row(r), b.row(r), to.cols);
  });
}

}  // namespace moeflux::cpu
