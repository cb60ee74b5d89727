// Depthwise causal convolution whose taps depend on the token, as its formula reads.
#include <algorithm>

#include "backend/reference/cells.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
namespace {

void convolve(const ops::TokenConv& op) {
  const RowsView to(op.out);
  const RowsView from(op.x);
  const int64_t channels = to.cols;
  const int64_t taps = op.weight.dim(0);
  const int64_t groups = op.shares.dim(1);
  const float* w = host_ptr<float>(op.weight);
  const float* shares = host_ptr<float>(op.shares);
  float* past = host_ptr<float>(
      op.sequences.front().state);  // row i is the input taps - 1 - i tokens before x
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      const float* own = shares + (t * groups + c / (channels / groups)) * taps;
      double sum = (double{w[c]} + own[0]) * from.row(t)[c];
      for (int64_t j = 1; j < taps; ++j) {
        sum += (double{w[j * channels + c]} + own[j]) * past[(taps - 1 - j) * channels + c];
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
    std::copy(past + channels, past + (taps - 1) * channels, past);
    std::copy_n(from.row(t), channels, past + (taps - 2) * channels);
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::TokenConv& op) { for_each_part(op, convolve); }

}  // namespace moeflux::reference
