// Running sums of the rows of sequences, as the formula reads.
#include "backend/reference/cells.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::SumRows& op) {
  for_each_part(op, [](const ops::SumRows& one) {
    const RowsView rows(one.x);
    float* state = host_ptr<float>(one.sequences.front().state);
    for (int64_t c = 0; c < rows.cols; ++c) {
      double sum = state[c];
      for (int64_t t = 0; t < rows.rows; ++t) sum += rows.row(t)[c];
      state[c] = static_cast<float>(sum);
    }
  });
}

}  // namespace moeflux::reference
