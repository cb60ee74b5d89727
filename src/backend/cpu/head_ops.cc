// Products of each head with its own rows of a matrix.
#include <algorithm>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"

namespace moeflux::cpu {

void CpuEncoder::collect_heads(const RowsView& from, const RowsView& to, int64_t n, int64_t heads) {
  const float** inputs = workspace(inputs_, n * heads);
  float** outputs = workspace(outputs_, n * heads);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < n; ++t) {
      inputs[h * n + t] = from.row(t * heads + h);
      outputs[h * n + t] = to.row(t * heads + h);
    }
  }
}

void CpuEncoder::head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) {
  flush();
  const RowsView to(out);
  const RowsView from(x);
  MF_CHECK(x.shape.rank() == 3 && out.shape.rank() == 3);
  const int64_t n = x.dim(0);
  const int64_t heads = x.dim(1);
  MF_CHECK(to.cols == rows.rows_per_head && from.cols == weight.cols && out.dim(0) == n &&
           out.dim(1) == heads);
  if (!supports("head_linear", weight) || from.rows == 0 || to.cols == 0) return;
  MF_CHECK((heads - 1) * rows.head_stride + rows.row_begin + rows.rows_per_head <= weight.rows);
  collect_heads(from, to, n, heads);
  const float** inputs = inputs_.data();
  if (wants_permuted(weight)) {
    permute_rows(std::span(inputs, static_cast<size_t>(n * heads)), from.cols, permuted_,
                 permuted_inputs_);
    inputs = permuted_inputs_.data();
  }
  const size_t space = has_kernels(weight) ? 0 : decoded_bytes(weight);
  std::byte* spaces = decode_spaces(space);
  const int64_t step = rows_per_task(to.cols, heads);
  const int64_t blocks = (to.cols + step - 1) / step;
  for_tasks(heads * blocks, from.rows * from.cols * to.cols, [&](int64_t task, int thread) {
    const int64_t h = task / blocks;
    const int64_t begin = task % blocks * step;
    const int64_t first = h * rows.head_stride + rows.row_begin;
    row_major_product({.weight = weight,
                       .x = inputs + h * n,
                       .out = outputs_.data() + h * n,
                       .tokens = n,
                       .row_begin = first + begin,
                       .row_end = first + std::min(to.cols, begin + step),
                       .out_row = first},
                      spaces + space * static_cast<size_t>(thread));
  });
}

void CpuEncoder::head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                                        const HeadRows& rows) {
  flush();
  const RowsView to(out);
  const RowsView from(x);
  MF_CHECK(x.shape.rank() == 3 && out.shape.rank() == 3);
  const int64_t n = x.dim(0);
  const int64_t heads = x.dim(1);
  MF_CHECK(from.cols == rows.rows_per_head && to.cols == weight.cols && out.dim(0) == n &&
           out.dim(1) == heads);
  if (!supports("head_linear_transposed", weight) || from.rows == 0 || to.cols == 0) return;
  MF_CHECK((heads - 1) * rows.head_stride + rows.row_begin + rows.rows_per_head <= weight.rows);
  collect_heads(from, to, n, heads);
  const RowDecoder* decoder = has_kernels(weight) ? nullptr : find_decoder(weight.format);
  const auto head_floats = static_cast<size_t>(rows.rows_per_head * weight.cols);
  const size_t space = decoder == nullptr ? 0 : head_floats * sizeof(float);
  std::byte* spaces = decode_spaces(space);
  const int64_t blocks = (to.cols + kTransposedColumns - 1) / kTransposedColumns;
  for_tasks(heads * blocks, from.rows * from.cols * to.cols, [&](int64_t task, int thread) {
    const int64_t h = task / blocks;
    const int64_t begin = task % blocks * kTransposedColumns;
    const int64_t first = h * rows.head_stride + rows.row_begin;
    std::byte* own = spaces + space * static_cast<size_t>(thread);
    if (decoder != nullptr) {
      decoder->decode(weight, first, rows.rows_per_head, reinterpret_cast<float*>(own));
    }
    kernels_.transposed_matmul({.w = decoder == nullptr
                                         ? matrix_args(weight)
                                         : decoded_args(own, rows.rows_per_head, weight.cols),
                                .x = inputs_.data() + h * n,
                                .out = outputs_.data() + h * n,
                                .tokens = n,
                                .first_row = decoder == nullptr ? first : 0,
                                .rows = rows.rows_per_head,
                                .col_begin = begin,
                                .col_end = std::min(to.cols, begin + kTransposedColumns)});
  });
}

}  // namespace moeflux::cpu
