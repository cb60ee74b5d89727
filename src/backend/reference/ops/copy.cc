// A tensor into another, as its formula reads.
#include <algorithm>

#include "backend/reference/cells.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::Copy& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  for (int64_t r = 0; r < to.rows; ++r) std::copy_n(from.row(r), to.cols, to.row(r));
}

}  // namespace moeflux::reference
