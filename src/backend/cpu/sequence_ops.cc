// Ops along the sequence: rotary embedding and convolution.
#include <algorithm>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
void CpuEncoder::rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                      const RopeOptions& options) {
  flush();
  const RowsView rows(x);
  const int64_t half = options.rotary_dim / 2;
  MF_CHECK(x.shape.rank() == 3 && options.rotary_dim <= rows.cols &&
           inverse_frequencies.num_elements() == half && positions.num_elements() == x.dim(0));
  const int64_t n = x.dim(0);
  const int64_t heads = x.dim(1);
  if (!status_.ok() || n == 0 || heads == 0 || half == 0) return;
  const int32_t* position = host_ptr<int32_t>(positions);
  const float* frequencies = host_ptr<float>(inverse_frequencies);
  float* space = workspace(floats_, n * 2 * half);
  for_tasks(n, n * (heads * rows.cols + 16 * half), [&](int64_t t) {
    float* cosines = space + t * 2 * half;
    float* sines = cosines + half;
    const int64_t at = position[t] / options.unit * options.unit;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(at) * frequencies[i];
      const SineAndCosine of = portable_sin_cos(angle);
      cosines[i] = static_cast<float>(of.cosine) * options.attention_factor;
      sines[i] = static_cast<float>(of.sine) * options.attention_factor;
    }
    kernels_.rope({.x = rows.row(t * heads),
                   .head_stride = x.strides[1],
                   .heads = heads,
                   .cosines = cosines,
                   .sines = sines,
                   .rotary_dim = options.rotary_dim,
                   .interleaved = options.interleaved});
  });
}

int64_t CpuEncoder::list_first_rows(std::span<const StateRows> sequences) {
  first_rows_.clear();
  int64_t row = 0;
  for (const StateRows& s : sequences) {
    MF_CHECK(s.state.is_contiguous());
    first_rows_.push_back(row);
    row += s.rows;
  }
  return row;
}

void CpuEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                             std::span<const StateRows> sequences) {
  flush();
  const RowsView to(out);
  const RowsView from(x);
  const int64_t channels = to.cols;
  const int64_t taps = weight.dim(1);
  constexpr int64_t kTapsMax = 16;  // of the kernels
  MF_CHECK(from.cols == channels && from.rows == to.rows && weight.dim(0) == channels &&
           weight.is_contiguous() && taps >= 1 && taps <= kTapsMax && out.shape.rank() == 2 &&
           (options.bias.is_null() || options.bias.num_elements() == channels));
  MF_CHECK(list_first_rows(sequences) == to.rows);
  if (!status_.ok() || to.rows == 0) return;
  constexpr int64_t kChannelsPerTask = 512;
  const int64_t blocks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  const auto count = static_cast<int64_t>(sequences.size());
  for_tasks(count * blocks, to.rows * channels * (taps + 8), [&](int64_t task) {
    const auto sequence = static_cast<size_t>(task / blocks);
    const StateRows& s = sequences[sequence];
    if (s.rows == 0) return;
    MF_CHECK(s.state.dim(0) == taps - 1 && s.state.dim(1) == channels);
    const int64_t begin = task % blocks * kChannelsPerTask;
    kernels_.causal_conv({.x = from.row(first_rows_[sequence]),
                          .x_stride = x.strides[0],
                          .out = to.row(first_rows_[sequence]),
                          .out_stride = out.strides[0],
                          .weight = host_ptr<float>(weight),
                          .bias = floats_or_null(options.bias),
                          .state = host_ptr<float>(s.state),
                          .channels = channels,
                          .taps = taps,
                          .activation = kernel_activation(options.activation),
                          .n = s.rows,
                          .begin = begin,
                          .end = std::min(channels, begin + kChannelsPerTask)});
  });
}

}  // namespace moeflux::cpu
