#include "backend/ops/layer_norm.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::LayerNorm& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const float* weight = host_ptr<float>(op.weight);
  context.workers.for_rows(to.rows, to.cols, [&](int64_t r) {
    context.select.layer_norm(to.row(r), from.row(r), weight, to.cols, op.eps);
  });
}

}  // namespace moeflux::cpu
