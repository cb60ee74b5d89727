#include "backend/ops/copy.h"

#include <cstring>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& /*context*/, const ops::Copy& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const auto bytes = static_cast<size_t>(to.cols) * sizeof(float);
  if (bytes == 0) return;
  for (int64_t r = 0; r < to.rows; ++r) std::memcpy(to.row(r), from.row(r), bytes);
}

}  // namespace moeflux::cpu
