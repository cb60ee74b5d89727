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
    int64_t t = 0;
    for (; t + 4 <= to.rows; t += 4) {
      const auto sums = dots(row, {from.row(t), from.row(t + 1), from.row(t + 2), from.row(t + 3)});
      for (int64_t k = 0; k < 4; ++k) to.row(t + k)[o] = static_cast<float>(sums[k]);
    }
    for (; t < to.rows; ++t) to.row(t)[o] = static_cast<float>(dot(row, from.row(t)));
  }
}

}  // namespace moeflux::reference
