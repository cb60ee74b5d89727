#include "backend/cpu/int8_products.h"

#include <algorithm>
#include <cstring>

namespace moeflux::cpu {
namespace {

using Results = float[kInt8Tokens][kInt8Rows];

void add_row_bias(const Tensor& bias, int64_t row, int64_t rows, int64_t tokens, Results& results) {
  if (bias.is_null()) return;
  for (int64_t r = 0; r < rows; ++r) {
    const float value = load_float(host_ptr<std::byte>(bias), row + r, bias.dtype);
    for (int64_t t = 0; t < tokens; ++t) results[t][r] += value;
  }
}

/// fn(token, tokens, row, rows) for every panel.
template <typename Fn>
void for_panels(int64_t tokens, int64_t row_begin, int64_t row_end, Fn&& fn) {
  for (int64_t t = 0; t < tokens; t += kInt8Tokens) {
    for (int64_t row = row_begin; row < row_end; row += kInt8Rows) {
      fn(t, std::min(kInt8Tokens, tokens - t), row, std::min(kInt8Rows, row_end - row));
    }
  }
}

void store(const Results& results, float* const* out, int64_t tokens, int64_t row, int64_t rows) {
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(out[t] + row, results[t], static_cast<size_t>(rows) * sizeof(float));
  }
}

}  // namespace

void int8_matmul(const Int8Kernels& int8, const Int8Matmul& args) {
  alignas(64) Results results;
  for_panels(args.tokens, args.row_begin, args.row_end,
             [&](int64_t t, int64_t tokens, int64_t row, int64_t rows) {
               int8.panel({.w = args.w,
                           .x = args.x + t,
                           .tokens = tokens,
                           .row = row,
                           .rows = rows,
                           .out = results});
               add_row_bias(args.bias, row, rows, tokens, results);
               store(results, args.out + t, tokens, row, rows);
             });
}

void int8_glu_matmul(const Int8Kernels& int8, const KernelTable& kernels,
                     const Int8GluMatmul& args) {
  alignas(64) Results gates;
  alignas(64) Results ups;
  for_panels(args.tokens, args.row_begin, args.row_end,
             [&](int64_t t, int64_t tokens, int64_t row, int64_t rows) {
               Int8PanelArgs panel{.w = args.gate,
                                   .x = args.x + t,
                                   .tokens = tokens,
                                   .row = row,
                                   .rows = rows,
                                   .out = gates};
               int8.panel(panel);
               panel.w = args.up;
               panel.out = ups;
               int8.panel(panel);
               add_row_bias(args.gate_bias, row, rows, tokens, gates);
               add_row_bias(args.up_bias, row, rows, tokens, ups);
               for (int64_t i = 0; i < tokens; ++i) {
                 kernels.glu(ups[i], gates[i], ups[i], rows, args.glu);
               }
               store(ups, args.out + t, tokens, row, rows);
             });
}

}  // namespace moeflux::cpu
