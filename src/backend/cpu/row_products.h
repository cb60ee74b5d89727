// Products of rows of activations with matrices that are not in tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernel_args.h"
#include "backend/cpu/row_decoder.h"
#include "backend/cpu/spaces.h"
#include "backend/cpu/workers.h"
#include "backend/ops/head_linear.h"

namespace moeflux::cpu {

/// out[t][r - out_row] = weight[r] . x[t] for rows [row_begin, row_end) of a row-major weight.
struct RowProduct {
  const Weight& weight;
  const float* const* x;  // in permuted order where wants_permuted(weight)
  float* const* out;
  int64_t tokens;
  int64_t row_begin;
  int64_t row_end;
  int64_t out_row;
};

class RowProducts {
 public:
  RowProducts(const KernelTable& kernels, Workers& workers)
      : kernels_(kernels), workers_(workers) {}

  /// Pointers to rows of activations and of products.
  const float** inputs(int64_t count) { return workspace(inputs_, count); }
  float** outputs(int64_t count) { return workspace(outputs_, count); }
  /// Points them at rows [heads, n] of [n, heads, cols] tensors.
  void collect_heads(const RowsView& from, const RowsView& to, int64_t heads);
  /// The first inputs in the order of 4-bit codes.
  const float* const* permuted(int64_t count, int64_t cols);
  /// `bytes` of workspace for each thread, `bytes` apart.
  std::byte* thread_spaces(size_t bytes) {
    return spaces_.get(bytes * static_cast<size_t>(workers_.threads()));
  }

  /// By the format's kernels, or by those of plain numbers after decoding into `space` of
  /// decoded_bytes().
  void multiply(const RowProduct& product, std::byte* space) const;
  /// Each head's rows of `from` times its rows of the weight.
  void multiply_heads(const RowsView& to, const RowsView& from, const Weight& weight,
                      const HeadRows& rows, int64_t heads);

 private:
  const KernelTable& kernels_;
  Workers& workers_;
  std::vector<const float*> inputs_;
  std::vector<float*> outputs_;
  AlignedSpace permuted_;
  std::vector<const float*> permuted_inputs_;
  AlignedSpace spaces_;
};

}  // namespace moeflux::cpu
