// Attention of a token to its states behind blocks of layers, as its formula reads.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {

void run(Reference& /*reference*/, const ops::MixBlocks& op) {
  const RowsView blocks(op.blocks);
  const RowsView last(op.last);
  const RowsView to(op.out);
  const int64_t count = op.blocks.dim(0);
  for (int64_t t = 0; t < to.rows; ++t) {
    std::vector<const float*> states;
    for (int64_t b = 0; b < count; ++b) states.push_back(blocks.row(b * to.rows + t));
    states.push_back(last.row(t));
    std::vector<double> scores;
    std::vector<double> factors;
    for (const float* state : states) {
      const std::span<const float> row(state, static_cast<size_t>(to.cols));
      const double mean = dot(row, state) / static_cast<double>(to.cols);
      const double factor = 1.0 / std::sqrt(mean + op.options.eps);
      scores.push_back(dot(row, host_ptr<float>(op.query)) * factor * op.options.scale);
      factors.push_back(op.options.sums_normed ? factor : 1.0);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0.0;
    for (double& score : scores) total += score = std::exp(score - largest);
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (size_t b = 0; b < states.size(); ++b) {
        sum += scores[b] / total * factors[b] * states[b][c];
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
  }
}

}  // namespace moeflux::reference
