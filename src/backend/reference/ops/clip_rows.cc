// Rows that are kept from being longer than a bound, as the formula reads.
#include <algorithm>
#include <cmath>
#include <span>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::ClipRows& op) {
  const RowsView rows(op.x);
  for (int64_t r = 0; r < rows.rows; ++r) {
    const std::span<float> row(rows.row(r), static_cast<size_t>(rows.cols));
    const double length = std::sqrt(dot(row, row.data()));
    const double factor = std::min(1.0, op.longest / (length + double{ops::ClipRows::kAdded}));
    for (float& value : row) value = static_cast<float>(value * factor);
  }
}

}  // namespace moeflux::reference
