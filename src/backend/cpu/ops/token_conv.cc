#include "backend/ops/token_conv.h"

#include <algorithm>

#include "backend/cpu/cpu_context.h"

namespace moeflux::cpu {
namespace {

/// The input `back` tokens before token t of a sequence.
const float* input(const RowsView& from, const float* state, int64_t taps, int64_t t,
                   int64_t back) {
  return t >= back ? from.row(t - back) : state + (taps - 1 + t - back) * from.cols;
}

void convolve(CpuContext& context, const ops::TokenConv& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const int64_t taps = op.weight.dim(0);
  const int64_t groups = op.shares.dim(1);
  const int64_t width = to.cols / groups;
  const float* weight = host_ptr<float>(op.weight);
  const float* shares = host_ptr<float>(op.shares);
  float* state = host_ptr<float>(op.sequences.front().state);
  context.workers.for_tasks(to.rows * groups, to.rows * to.cols * taps, [&](int64_t task) {
    const int64_t t = task / groups;
    const int64_t begin = task % groups * width;
    float* out = to.row(t) + begin;
    for (int64_t j = taps - 1; j >= 0; --j) {
      const float share = shares[task * taps + j];
      const float* w = weight + j * to.cols + begin;
      const float* x = input(from, state, taps, t, j) + begin;
      if (j == taps - 1) {
        for (int64_t c = 0; c < width; ++c) out[c] = (w[c] + share) * x[c];
      } else {
        for (int64_t c = 0; c < width; ++c) out[c] += (w[c] + share) * x[c];
      }
    }
  });
  // The oldest first: a row is read before it is overwritten.
  for (int64_t j = 0; j + 1 < taps; ++j) {
    std::copy_n(input(from, state, taps, to.rows, taps - 1 - j), to.cols, state + j * to.cols);
  }
}

}  // namespace

void run(CpuContext& context, const ops::TokenConv& op) {
  for_each_part(op, [&](const ops::TokenConv& own) {
    if (own.rows() > 0) convolve(context, own);
  });
}

}  // namespace moeflux::cpu
