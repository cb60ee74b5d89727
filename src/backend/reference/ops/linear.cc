// A product with a matrix, as its formula reads.
#include <span>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& reference, const ops::Linear& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  for (int64_t o = 0; o < op.weight.rows; ++o) {
    const std::span<const float> row = reference.decoded_row(op.weight, o);
    for (int64_t t = 0; t < to.rows; ++t) to.row(t)[o] = static_cast<float>(dot(row, from.row(t)));
  }
}

}  // namespace moeflux::reference
