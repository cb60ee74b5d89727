#include "backend/ops/clip_rows.h"

#include <cmath>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::ClipRows& op) {
  const RowsView rows(op.x);
  context.workers.for_rows(rows.rows, rows.cols, [&](int64_t r) {
    float* row = rows.row(r);
    const float length =
        std::sqrt(context.kernels.dot(row, row, rows.cols)) + ops::ClipRows::kAdded;
    if (length > op.longest) context.kernels.scale(row, row, op.longest / length, rows.cols);
  });
}

}  // namespace moeflux::cpu
