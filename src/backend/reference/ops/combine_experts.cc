// The sum of a token's experts, as its formula reads.
#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::CombineExperts& op) {
  const RowsView to(op.out);
  const RowsView from(op.slots);
  const int64_t top_k = op.routes.weights.dim(1);
  const float* weights = host_ptr<float>(op.routes.weights);
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (int64_t r = 0; r < top_k; ++r) {
        sum += static_cast<double>(weights[t * top_k + r]) * from.row(t * top_k + r)[c];
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
  }
}

}  // namespace moeflux::reference
