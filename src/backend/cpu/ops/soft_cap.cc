#include "backend/ops/soft_cap.h"

#include <algorithm>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::SoftCap& op) {
  const RowsView rows(op.x);
  // One row of logits is worth several threads. Pieces are whole cache lines.
  constexpr int64_t kPiece = 8 * 1024;
  const int64_t pieces = (rows.cols + kPiece - 1) / kPiece;
  context.workers.for_tasks(rows.rows * pieces, 8 * rows.rows * rows.cols, [&](int64_t task) {
    const int64_t begin = task % pieces * kPiece;
    context.kernels.soft_cap(rows.row(task / pieces) + begin, op.cap,
                             std::min(kPiece, rows.cols - begin));
  });
}

}  // namespace moeflux::cpu
