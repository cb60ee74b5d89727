// Root mean square normalization of rows, as its formula reads.
#include <cmath>

#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::RmsNorm& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  for (int64_t r = 0; r < to.rows; ++r) {
    const float* row = from.row(r);
    const float* w =
        op.weight.is_null() ? nullptr : RowsView(op.weight).row(r % RowsView(op.weight).rows);
    double squares = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) squares += static_cast<double>(row[c]) * row[c];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(to.cols) + op.eps);
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>(row[c] * scale * (w == nullptr ? 1.0f : w[c]));
    }
  }
}

}  // namespace moeflux::reference
