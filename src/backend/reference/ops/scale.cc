// A tensor times a number, as its formula reads.
#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::Scale& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) to.row(r)[c] = from.row(r)[c] * op.factor;
  }
}

}  // namespace moeflux::reference
