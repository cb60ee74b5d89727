// A gated unit, as its formula reads.
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::Glu& op) {
  const RowsView to(op.out);
  const RowsView gates(op.gate);
  const RowsView ups(op.up);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>(gated(gates.row(r)[c], ups.row(r)[c], op.options));
    }
  }
}

}  // namespace moeflux::reference
