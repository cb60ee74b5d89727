#include "backend/ops/mix_blocks.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {
namespace {

constexpr int64_t kWidth = 16;  // kernels may write whole vectors

int64_t padded(int64_t count) { return (count + kWidth - 1) / kWidth * kWidth; }

/// Turns scores [count] into weights.
void softmax(const KernelTable& kernels, float* scores, int64_t count) {
  const float largest = *std::max_element(scores, scores + count);
  for (int64_t b = 0; b < count; ++b) scores[b] -= largest;
  kernels.exp(scores, scores, count);
  float total = 0.0f;
  for (int64_t b = 0; b < count; ++b) total += scores[b];
  for (int64_t b = 0; b < count; ++b) scores[b] /= total;
}

}  // namespace

void run(CpuContext& context, const ops::MixBlocks& op) {
  const KernelTable& kernels = context.kernels;
  const RowsView blocks(op.blocks);
  const RowsView last(op.last);
  const RowsView to(op.out);
  const int64_t count = op.blocks.dim(0) + 1;
  const int64_t stride = to.rows * to.cols;
  const float* query = host_ptr<float>(op.query);
  const int64_t width = padded(count);
  const int64_t space = 2 * width + padded(to.cols);
  float* spaces = context.spaces.floats(to.rows * space);
  context.workers.for_tasks(to.rows, 3 * count * to.rows * to.cols, [&](int64_t t) {
    float* weights = spaces + t * space;
    float* factors = weights + width;
    float* own = factors + width;
    for (int64_t b = 0; b < count; ++b) {
      const float* state = b + 1 < count ? blocks.row(b * to.rows + t) : last.row(t);
      const float squares = kernels.dot(state, state, to.cols);
      const float factor = 1.0f / std::sqrt(squares / static_cast<float>(to.cols) + op.options.eps);
      weights[b] = kernels.dot(state, query, to.cols) * factor * op.options.scale;
      factors[b] = op.options.sums_normed ? factor : 1.0f;
    }
    softmax(kernels, weights, count);
    for (int64_t b = 0; b < count; ++b) weights[b] *= factors[b];
    kernels.weighted_sum(to.row(t), blocks.row(t), stride, weights, count - 1, to.cols);
    kernels.scale(own, last.row(t), weights[count - 1], to.cols);
    kernels.add(to.row(t), to.row(t), own, to.cols);
  });
}

}  // namespace moeflux::cpu
