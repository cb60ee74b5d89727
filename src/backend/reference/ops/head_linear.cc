// A product with a matrix of each head, as its formula reads.
#include <span>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& reference, const ops::HeadLinear& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const int64_t heads = op.x.dim(1);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < op.rows.rows_per_head; ++r) {
      const std::span<const float> row =
          reference.decoded_row(op.weight, h * op.rows.head_stride + op.rows.row_begin + r);
      for (int64_t t = 0; t < op.x.dim(0); ++t) {
        to.row(t * heads + h)[r] = static_cast<float>(dot(row, from.row(t * heads + h)));
      }
    }
  }
}

}  // namespace moeflux::reference
