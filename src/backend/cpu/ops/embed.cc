#include "backend/ops/embed.h"

#include <span>

#include "backend/cpu/cpu_context.h"
#include "base/check.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::Embed& op) {
  const RowsView to(op.out);
  const int32_t* ids = host_ptr<int32_t>(op.token_ids);
  context.workers.for_tasks(to.rows, to.rows * to.cols * 8, [&](int64_t t) {
    MF_CHECK(ids[t] >= 0 && ids[t] < op.table.rows);
    decode_row(op.table, ids[t], std::span(to.row(t), static_cast<size_t>(to.cols)));
  });
}

}  // namespace moeflux::cpu
