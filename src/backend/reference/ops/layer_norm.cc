// Layer normalization of rows, as its formula reads.
#include <cmath>

#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::LayerNorm& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const float* w = host_ptr<float>(op.weight);
  const auto cols = static_cast<double>(to.cols);
  for (int64_t r = 0; r < to.rows; ++r) {
    const float* row = from.row(r);
    double mean = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) mean += row[c] / cols;
    double squares = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double scale = 1.0 / std::sqrt(squares / cols + op.eps);
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>((row[c] - mean) * scale * w[c]);
    }
  }
}

}  // namespace moeflux::reference
