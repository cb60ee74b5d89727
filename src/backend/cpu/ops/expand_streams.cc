#include "backend/ops/expand_streams.h"

#include <array>

#include "backend/cpu/cpu_context.h"
#include "backend/cpu/portable_gates.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::ExpandStreams& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const RowsView added(op.branch);
  const int64_t streams = op.x.dim(1);
  const float* write = host_ptr<float>(op.gates.write);
  const float* mix = floats_or_null(op.gates.mix);
  context.workers.for_tasks(added.rows, to.rows * to.cols * (streams + 1), [&](int64_t t) {
    std::array<float, kStreamsMax> made{};
    for (int64_t i = 0; op.gates.write_is_logits && i < streams; ++i) {
      made[static_cast<size_t>(i)] = static_cast<float>(2.0 * sigmoid(write[t * streams + i]));
    }
    context.kernels.expand_streams(
        {.x = from.row(t * streams),
         .branch = added.row(t),
         .write = op.gates.write_is_logits ? made.data() : write + t * streams,
         .mix = mix == nullptr ? nullptr : mix + t * streams * streams,
         .streams = streams,
         .n = from.cols,
         .out = to.row(t * streams)});
  });
}

}  // namespace moeflux::cpu
