// A branch's result for all streams of a residual, as its formula reads.
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::ExpandStreams& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const RowsView added(op.branch);
  const int64_t streams = op.x.dim(1);
  for (int64_t t = 0; t < op.x.dim(0); ++t) {
    for (int64_t j = 0; j < streams; ++j) {
      const double given = RowsView(op.gates.write).row(t)[j];
      const double write = op.gates.write_is_logits ? 2.0 * sigmoid(given) : given;
      for (int64_t c = 0; c < from.cols; ++c) {
        double sum = write * added.row(t)[c];
        if (op.gates.mix.is_null()) {
          sum += from.row(t * streams + j)[c];
        } else {
          for (int64_t i = 0; i < streams; ++i) {
            sum += static_cast<double>(RowsView(op.gates.mix).row(t * streams + i)[j]) *
                   from.row(t * streams + i)[c];
          }
        }
        to.row(t * streams + j)[c] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace moeflux::reference
