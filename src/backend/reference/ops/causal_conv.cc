// Depthwise causal convolution, as its formula reads.
#include <algorithm>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
namespace {

void convolve(const ops::CausalConv& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const int64_t channels = to.cols;
  const int64_t taps = op.weight.dim(1);
  const float* w = host_ptr<float>(op.weight);
  float* past = host_ptr<float>(
      op.sequences.front().state);  // row i is the input taps - 1 - i tokens before x
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = op.options.bias.is_null() ? 0.0 : host_ptr<float>(op.options.bias)[c];
      for (int64_t j = 0; j + 1 < taps; ++j) {
        sum += static_cast<double>(w[c * taps + j]) * past[j * channels + c];
      }
      sum += static_cast<double>(w[c * taps + taps - 1]) * from.row(t)[c];
      to.row(t)[c] = static_cast<float>(activate(sum, op.options.activation));
    }
    std::copy(past + channels, past + (taps - 1) * channels, past);
    std::copy_n(from.row(t), channels, past + (taps - 2) * channels);
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::CausalConv& op) { for_each_part(op, convolve); }

}  // namespace moeflux::reference
