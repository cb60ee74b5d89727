// Numbers kept between two bounds, as its formula reads.
#include <cmath>

#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::SoftCap& op) {
  const RowsView rows(op.x);
  for (int64_t r = 0; r < rows.rows; ++r) {
    for (int64_t c = 0; c < rows.cols; ++c) {
      float& value = rows.row(r)[c];
      value = static_cast<float>(op.cap * std::tanh(static_cast<double>(value) / op.cap));
    }
  }
}

}  // namespace moeflux::reference
