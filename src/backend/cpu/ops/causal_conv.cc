#include "backend/ops/causal_conv.h"

#include <algorithm>

#include "backend/cpu/cpu_context.h"
#include "backend/cpu/state_rows.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::CausalConv& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const int64_t channels = to.cols;
  const int64_t taps = op.weight.dim(1);
  if (to.rows == 0) return;
  constexpr int64_t kChannelsPerTask = 512;
  const std::span<const int64_t> first = first_rows(context, op.sequences);
  const int64_t blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const auto count = static_cast<int64_t>(op.sequences.size());
  context.workers.for_tasks(count * blocks, to.rows * channels * (taps + 8), [&](int64_t task) {
    const auto sequence = static_cast<size_t>(task / blocks);
    const StateRows& s = op.sequences[sequence];
    if (s.rows == 0) return;
    const int64_t begin = task % blocks * kChannelsPerTask;
    context.kernels.causal_conv({.x = from.row(first[sequence]),
                                 .x_stride = op.x.strides[0],
                                 .out = to.row(first[sequence]),
                                 .out_stride = op.out.strides[0],
                                 .weight = host_ptr<float>(op.weight),
                                 .bias = floats_or_null(op.options.bias),
                                 .state = host_ptr<float>(s.state),
                                 .channels = channels,
                                 .taps = taps,
                                 .activation = kernel_activation(op.options.activation),
                                 .n = s.rows,
                                 .begin = begin,
                                 .end = std::min(channels, begin + kChannelsPerTask)});
  });
}

}  // namespace moeflux::cpu
