// The networks of experts, as its formula reads.
#include <span>
#include <vector>

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
  std::vector<int64_t> slots;  // of an expert, whose rows are decoded once for all of them
  std::vector<double> gates;
  for (const ExpertWeights& expert : op.ready) {
    slots.clear();
    for (int64_t slot = 0; slot < from.rows * top_k; ++slot) {
      if (ids[slot] == index(expert.expert)) slots.push_back(slot);
    }
    if (slots.empty()) continue;
    gates.resize(slots.size());
    for (int64_t m = 0; m < expert.gate.rows; ++m) {
      const std::span<const float> gate = reference.decoded_row(expert.gate, m);
      for (size_t i = 0; i < slots.size(); ++i) {
        gates[i] = dot(gate, from.row(slots[i] / top_k)) + bias_at(expert.gate_bias, m);
      }
      const std::span<const float> up = reference.decoded_row(expert.up, m);
      for (size_t i = 0; i < slots.size(); ++i) {
        const double linear = dot(up, from.row(slots[i] / top_k)) + bias_at(expert.up_bias, m);
        hidden.row(slots[i])[m] = static_cast<float>(gated(gates[i], linear, op.glu));
      }
    }
    for (int64_t o = 0; o < expert.down.rows; ++o) {
      const std::span<const float> down = reference.decoded_row(expert.down, o);
      for (const int64_t slot : slots) {
        to.row(slot)[o] =
            static_cast<float>(dot(down, hidden.row(slot)) + bias_at(expert.down_bias, o));
      }
    }
  }
}

}  // namespace moeflux::reference
