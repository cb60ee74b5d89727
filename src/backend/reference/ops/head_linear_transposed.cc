// A product with the transpose of each head's matrix, as its formula reads.
#include <algorithm>
#include <span>
#include <vector>

#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& reference, const ops::HeadLinearTransposed& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const int64_t heads = op.x.dim(1);
  std::vector<double> sums(static_cast<size_t>(op.x.dim(0) * to.cols));
  for (int64_t h = 0; h < heads; ++h) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t r = 0; r < op.rows.rows_per_head; ++r) {
      const std::span<const float> row =
          reference.decoded_row(op.weight, h * op.rows.head_stride + op.rows.row_begin + r);
      for (int64_t t = 0; t < op.x.dim(0); ++t) {
        const double factor = from.row(t * heads + h)[r];
        for (size_t c = 0; c < row.size(); ++c) {
          sums[static_cast<size_t>(t) * row.size() + c] += factor * row[c];
        }
      }
    }
    for (int64_t t = 0; t < op.x.dim(0); ++t) {
      for (int64_t c = 0; c < to.cols; ++c) {
        to.row(t * heads + h)[c] = static_cast<float>(sums[static_cast<size_t>(t * to.cols + c)]);
      }
    }
  }
}

}  // namespace moeflux::reference
