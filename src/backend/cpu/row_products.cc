#include "backend/cpu/row_products.h"

#include <algorithm>

namespace moeflux::cpu {

void RowProducts::collect_heads(const RowsView& from, const RowsView& to, int64_t heads) {
  const int64_t n = from.rows / heads;
  const float** x = inputs(n * heads);
  float** out = outputs(n * heads);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < n; ++t) {
      x[h * n + t] = from.row(t * heads + h);
      out[h * n + t] = to.row(t * heads + h);
    }
  }
}

const float* const* RowProducts::permuted(int64_t count, int64_t cols) {
  float* rows = permuted_.floats(count * cols);
  const float** to = workspace(permuted_inputs_, count);
  workers_.for_tasks(count, count * cols, [&](int64_t i) {
    kernels_.permute(inputs_[static_cast<size_t>(i)], cols, rows + i * cols);
    to[i] = rows + i * cols;
  });
  return to;
}

void RowProducts::multiply(const RowProduct& p, std::byte* space) const {
  if (has_kernels(p.weight)) {
    return kernels_.matmul({.w = matrix_args(p.weight),
                            .bias = {},
                            .x = p.x,
                            .out = p.out,
                            .tokens = p.tokens,
                            .row_begin = p.row_begin,
                            .row_end = p.row_end,
                            .out_row = p.out_row});
  }
  const RowDecoder& decoder = *find_decoder(p.weight.format);
  for (int64_t row = p.row_begin; row < p.row_end; row += kDecodedRows) {
    const int64_t rows = std::min(kDecodedRows, p.row_end - row);
    decoder.decode(p.weight, row, rows, reinterpret_cast<float*>(space));
    kernels_.matmul({.w = decoded_args(space, rows, p.weight.cols),
                     .bias = {},
                     .x = p.x,
                     .out = p.out,
                     .tokens = p.tokens,
                     .row_begin = 0,
                     .row_end = rows,
                     .out_row = p.out_row - row});
  }
}

void RowProducts::multiply_heads(const RowsView& to, const RowsView& from, const Weight& weight,
                                 const HeadRows& rows, int64_t heads) {
  const int64_t n = from.rows / heads;
  collect_heads(from, to, heads);
  const float* const* x = wants_permuted(weight) ? permuted(from.rows, from.cols) : inputs_.data();
  const size_t space = has_kernels(weight) ? 0 : decoded_bytes(weight);
  std::byte* spaces = thread_spaces(space);
  const int64_t step = workers_.rows_per_task(to.cols, heads);
  const int64_t blocks = (to.cols + step - 1) / step;
  workers_.for_tasks(heads * blocks, from.rows * from.cols * to.cols,
                     [&](int64_t task, int thread) {
                       const int64_t h = task / blocks;
                       const int64_t begin = task % blocks * step;
                       const int64_t first = h * rows.head_stride + rows.row_begin;
                       multiply({.weight = weight,
                                 .x = x + h * n,
                                 .out = outputs_.data() + h * n,
                                 .tokens = n,
                                 .row_begin = first + begin,
                                 .row_end = first + std::min(to.cols, begin + step),
                                 .out_row = first},
                                spaces + space * static_cast<size_t>(thread));
                     });
}

}  // namespace moeflux::cpu
