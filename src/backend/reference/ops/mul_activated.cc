// A tensor times activated gates, as its formula reads.
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::MulActivated& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const RowsView gates(op.gate);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) {
      const double g = gates.row(r)[gates.cols == 1 ? 0 : c];
      to.row(r)[c] = static_cast<float>(from.row(r)[c] * activate(g, op.activation));
    }
  }
}

}  // namespace moeflux::reference
