// Roots of products of rows, as its formula reads.
#include <algorithm>
#include <cmath>
#include <span>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::RootDots& op) {
  const RowsView to(op.out);
  const RowsView left(op.a);
  const RowsView right(op.b);
  for (int64_t r = 0; r < left.rows; ++r) {
    const std::span<const float> row(left.row(r), static_cast<size_t>(left.cols));
    const double d = dot(row, right.row(r)) * op.options.scale;
    const double root = std::sqrt(std::max(std::abs(d), static_cast<double>(op.options.least)));
    to.row(r / to.cols)[r % to.cols] = static_cast<float>(d < 0.0 ? -root : d == 0.0 ? 0.0 : root);
  }
}

}  // namespace moeflux::reference
