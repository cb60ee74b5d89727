// Mamba-2's selective scan, as its formula reads.
#include <cmath>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
namespace {

void update(const ops::SelectiveScan& op) {
  const ScanOptions& o = op.options;
  const RowsView rows(op.xbc);
  const RowsView to(op.out);
  const RowsView dt(op.dt);
  const int64_t inner = o.heads * o.head_dim;
  for (int64_t t = 0; t < rows.rows; ++t) {
    for (int64_t head = 0; head < o.heads; ++head) {
      const float* x = rows.row(t) + head * o.head_dim;
      const float* b = rows.row(t) + inner + o.group_of(head) * o.state_dim;
      const float* c = b + o.groups * o.state_dim;
      const double step = softplus(static_cast<double>(dt.row(t)[head]) +
                                   host_ptr<float>(op.weights.dt_bias)[head]);
      const double rate = std::exp(static_cast<double>(host_ptr<float>(op.weights.a_log)[head]));
      const double decay = std::exp(-rate * step);
      const double skip = host_ptr<float>(op.weights.skip)[head];
      float* s = host_ptr<float>(op.sequences.front().state) + head * o.state_dim * o.head_dim;
      float* result = to.row(t * o.heads + head);
      for (int64_t j = 0; j < o.head_dim; ++j) {
        double sum = skip * x[j];
        for (int64_t i = 0; i < o.state_dim; ++i) {
          float& cell = s[i * o.head_dim + j];
          const double updated = decay * cell + step * x[j] * b[i];
          cell = static_cast<float>(updated);
          sum += updated * c[i];
        }
        result[j] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::SelectiveScan& op) { for_each_part(op, update); }

}  // namespace moeflux::reference
