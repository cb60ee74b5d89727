// The weights of chosen and of shared experts, as their formula reads.
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::ShareWeights& op) {
  const RowsView chosen(op.weights);
  const RowsView shared(op.out);
  const RowsView logits(op.logits);
  for (int64_t t = 0; t < chosen.rows; ++t) {
    double sum = 0.0;
    for (int64_t r = 0; r < chosen.cols; ++r) sum += chosen.row(t)[r];
    for (int64_t s = 0; s < shared.cols; ++s) sum += sigmoid(logits.row(t)[s]);
    for (int64_t r = 0; r < chosen.cols; ++r) {
      chosen.row(t)[r] = static_cast<float>(chosen.row(t)[r] * op.scale / sum);
    }
    for (int64_t s = 0; s < shared.cols; ++s) {
      shared.row(t)[s] = static_cast<float>(sigmoid(logits.row(t)[s]) * op.scale / sum);
    }
  }
}

}  // namespace moeflux::reference
