#include "backend/ops/share_weights.h"

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::ShareWeights& op) {
  const RowsView chosen(op.weights);
  const RowsView shared(op.out);
  const RowsView logits(op.logits);
  const int64_t work = chosen.rows * (chosen.cols + 4 * shared.cols);
  context.workers.for_tasks(chosen.rows, work, [&](int64_t t) {
    float* weights = chosen.row(t);
    float* scores = shared.row(t);
    const float one = 1.0f;
    float sum = 0.0f;
    for (int64_t r = 0; r < chosen.cols; ++r) sum += weights[r];
    for (int64_t s = 0; s < shared.cols; ++s) {
      context.kernels.mul_activated(scores + s, &one, logits.row(t) + s, 1, 1,
                                    ActivationKind::kSigmoid);
      sum += scores[s];
    }
    const float factor = op.scale / sum;
    context.kernels.scale(weights, weights, factor, chosen.cols);
    context.kernels.scale(scores, scores, factor, shared.cols);
  });
}

}  // namespace moeflux::cpu
