// The sum of two tensors, as its formula reads.
#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::Add& op) {
  const RowsView to(op.out);
  const RowsView left(op.a);
  const RowsView right(op.b);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) to.row(r)[c] = left.row(r)[c] + right.row(r)[c];
  }
}

}  // namespace moeflux::reference
