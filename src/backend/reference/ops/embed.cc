// Rows of a table, as its formula reads.
#include <algorithm>
#include <span>

#include "backend/reference/cells.h"
#include "base/check.h"

namespace moeflux::reference {

void run(Reference& reference, const ops::Embed& op) {
  const RowsView to(op.out);
  const int32_t* ids = host_ptr<int32_t>(op.token_ids);
  for (int64_t r = 0; r < to.rows; ++r) {
    MF_CHECK(ids[r] >= 0 && ids[r] < op.table.rows);
    const std::span<const float> row = reference.decoded_row(op.table, ids[r]);
    std::copy(row.begin(), row.end(), to.row(r));
  }
}

}  // namespace moeflux::reference
