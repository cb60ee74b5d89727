#include "backend/ops/selective_scan.h"

#include "backend/cpu/cpu_context.h"
#include "backend/cpu/portable_gates.h"
#include "backend/cpu/state_rows.h"
#include "base/portable_math.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::SelectiveScan& op) {
  const ScanOptions& o = op.options;
  const RowsView to(op.out);
  const RowsView rows(op.xbc);
  const RowsView steps(op.dt);
  const int64_t n = rows.rows;
  if (n == 0) return;
  const StripTasks tasks{o.heads, o.state_dim, o.head_dim,
                         3 * n * o.heads * o.state_dim * o.head_dim};
  const int64_t strips_size = context.workers.threads() * tasks.strip_size();
  float* strips = context.spaces.floats(strips_size + 2 * o.heads * n);
  float* decay = strips + strips_size;  // [heads, n]
  float* step = decay + o.heads * n;    // [heads, n]
  const auto find_steps = [&](int64_t head, int64_t begin, int64_t end) {
    const double rate = portable_exp(static_cast<double>(host_ptr<float>(op.weights.a_log)[head]));
    const double bias = host_ptr<float>(op.weights.dt_bias)[head];
    for (int64_t t = begin; t < end; ++t) {
      const double own = softplus(static_cast<double>(steps.row(t)[head]) + bias);
      step[head * n + t] = static_cast<float>(own);
      decay[head * n + t] = static_cast<float>(portable_exp(-rate * own));
    }
  };
  const std::span<const int64_t> first = first_rows(context, op.sequences);
  const auto scan = [&](size_t sequence, int64_t head, int64_t begin, int64_t end, float* strip) {
    const StateRows& s = op.sequences[sequence];
    const int64_t row = first[sequence];
    const float* b = rows.row(row) + o.heads * o.head_dim + o.group_of(head) * o.state_dim;
    context.kernels.recurrence({.rule = StateRule::kScan,
                                .q = b + o.groups * o.state_dim,
                                .k = b,
                                .decays = nullptr,
                                .recall = nullptr,
                                .key_stride = op.xbc.strides[0],
                                .v = rows.row(row) + head * o.head_dim,
                                .v_stride = op.xbc.strides[0],
                                .out = to.row(row * o.heads + head),
                                .out_stride = op.out.strides[0],
                                .decay = decay + head * n + row,
                                .beta = step + head * n + row,
                                .skip = host_ptr<float>(op.weights.skip)[head],
                                .state = host_ptr<float>(s.state) + head * o.state_dim * o.head_dim,
                                .n = s.rows,
                                .key_dim = o.state_dim,
                                .value_dim = o.head_dim,
                                .begin = begin,
                                .end = end,
                                .workspace = strip});
  };
  if (is_token_each(op.sequences)) {
    context.workers.for_tasks(n * o.heads, tasks.work, [&](int64_t task) {
      const int64_t row = task / o.heads;
      const int64_t head = task % o.heads;
      find_steps(head, row, row + 1);
      scan(static_cast<size_t>(row), head, 0, o.head_dim, nullptr);
    });
    return;
  }
  context.workers.for_tasks(o.heads, 128 * n * o.heads,
                            [&](int64_t head) { find_steps(head, 0, n); });
  run_strips(context, tasks, op.sequences, strips, scan);
}

}  // namespace moeflux::cpu
