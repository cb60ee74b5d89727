// The networks of experts, as its formula reads.
#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {
namespace {

double bias_at(const Tensor& bias, int64_t i) {
  return bias.is_null() ? 0.0 : load_float(host_ptr<std::byte>(bias), i, bias.dtype);
}

}  // namespace

void run(Reference& reference, const ops::ExpertFfn& op) {
  const RowsView from(op.x);
  const RowsView hidden(op.intermediate);
  const RowsView to(op.slots);
  const int64_t top_k = op.routes.ids.dim(1);
  const int32_t* ids = host_ptr<int32_t>(op.routes.ids);
  for (const ExpertWeights& expert : op.ready) {
    for (int64_t slot = 0; slot < from.rows * top_k; ++slot) {
      if (ids[slot] != index(expert.expert)) continue;
      const float* input = from.row(slot / top_k);
      float* h = hidden.row(slot);
      for (int64_t m = 0; m < expert.gate.rows; ++m) {
        const double gate =
            dot(reference.decoded_row(expert.gate, m), input) + bias_at(expert.gate_bias, m);
        const double up =
            dot(reference.decoded_row(expert.up, m), input) + bias_at(expert.up_bias, m);
        h[m] = static_cast<float>(gated(gate, up, op.glu));
      }
      for (int64_t o = 0; o < expert.down.rows; ++o) {
        to.row(slot)[o] = static_cast<float>(dot(reference.decoded_row(expert.down, o), h) +
                                             bias_at(expert.down_bias, o));
      }
    }
  }
}

}  // namespace moeflux::reference
