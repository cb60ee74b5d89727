// The gated sum of the streams of a residual, as its formula reads.
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::SumGated& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const RowsView gate(op.gates);
  const int64_t streams = op.x.dim(1);
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (int64_t j = t * streams; j < (t + 1) * streams; ++j) {
        sum += from.row(j)[c] * sigmoid(gate.row(j)[c]);
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
  }
}

}  // namespace moeflux::reference
