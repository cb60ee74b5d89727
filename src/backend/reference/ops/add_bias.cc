// A bias for each column, as its formula reads.
#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::AddBias& op) {
  const RowsView rows(op.x);
  const float* b = host_ptr<float>(op.bias);
  for (int64_t r = 0; r < rows.rows; ++r) {
    for (int64_t c = 0; c < rows.cols; ++c) rows.row(r)[c] += b[c];
  }
}

}  // namespace moeflux::reference
