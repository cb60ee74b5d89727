#include "backend/ops/add_bias.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::AddBias& op) {
  const RowsView rows(op.x);
  const float* bias = host_ptr<float>(op.bias);
  context.workers.for_rows(rows.rows, rows.cols, [&](int64_t r) {
    context.kernels.add(rows.row(r), rows.row(r), bias, rows.cols);
  });
}

}  // namespace moeflux::cpu
