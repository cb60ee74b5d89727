#include "backend/ops/head_linear_transposed.h"

#include <algorithm>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {

void run(CpuContext& context, const ops::HeadLinearTransposed& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  if (from.rows == 0 || to.cols == 0) return;
  const Weight& weight = op.weight;
  const int64_t n = op.x.dim(0);
  const int64_t heads = op.x.dim(1);
  context.rows.collect_heads(from, to, heads);
  const float* const* inputs = context.rows.inputs(from.rows);
  float* const* outputs = context.rows.outputs(from.rows);
  const RowDecoder* decoder = has_kernels(weight) ? nullptr : find_decoder(weight.format);
  const auto head_floats = static_cast<size_t>(op.rows.rows_per_head * weight.cols);
  const size_t space = decoder == nullptr ? 0 : head_floats * sizeof(float);
  std::byte* spaces = context.rows.thread_spaces(space);
  const int64_t blocks = (to.cols + kTransposedColumns - 1) / kTransposedColumns;
  context.workers.for_tasks(
      heads * blocks, from.rows * from.cols * to.cols, [&](int64_t task, int thread) {
        const int64_t h = task / blocks;
        const int64_t begin = task % blocks * kTransposedColumns;
        const int64_t first = h * op.rows.head_stride + op.rows.row_begin;
        const int64_t rows = op.rows.rows_per_head;
        std::byte* own = spaces + space * static_cast<size_t>(thread);
        if (decoder != nullptr) {
          decoder->decode(weight, first, rows, reinterpret_cast<float*>(own));
        }
        context.kernels.transposed_matmul(
            {.w = decoder == nullptr ? matrix_args(weight) : decoded_args(own, rows, weight.cols),
             .x = inputs + h * n,
             .out = outputs + h * n,
             .tokens = n,
             .first_row = decoder == nullptr ? first : 0,
             .rows = rows,
             .col_begin = begin,
             .col_end = std::min(to.cols, begin + kTransposedColumns)});
      });
}

}  // namespace moeflux::cpu
