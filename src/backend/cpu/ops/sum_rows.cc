#include "backend/ops/sum_rows.h"

#include <algorithm>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::SumRows& op) {
  constexpr int64_t kPiece = 1024;  // columns of a task, whole cache lines
  for_each_part(op, [&](const ops::SumRows& one) {
    const RowsView rows(one.x);
    float* state = host_ptr<float>(one.sequences.front().state);
    const int64_t pieces = (rows.cols + kPiece - 1) / kPiece;
    context.workers.for_tasks(pieces, rows.rows * rows.cols, [&](int64_t piece) {
      const int64_t begin = piece * kPiece;
      const int64_t cols = std::min(kPiece, rows.cols - begin);
      for (int64_t t = 0; t < rows.rows; ++t) {
        context.kernels.add(state + begin, state + begin, rows.row(t) + begin, cols);
      }
    });
  });
}

}  // namespace moeflux::cpu
