#include "backend/ops/combine_experts.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::CombineExperts& op) {
  const RowsView to(op.out);
  const RowsView from(op.slots);
  const int64_t top_k = op.routes.weights.dim(1);
  const float* weights = host_ptr<float>(op.routes.weights);
  context.workers.for_tasks(to.rows, to.rows * to.cols * top_k, [&](int64_t t) {
    context.kernels.weighted_sum(to.row(t), from.row(t * top_k), from.cols, weights + t * top_k,
                                 top_k, to.cols);
  });
}

}  // namespace moeflux::cpu
