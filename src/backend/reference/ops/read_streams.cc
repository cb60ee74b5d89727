// The shares of residuals of several streams that branches read, and their gates, as the formula
// reads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"

namespace moeflux::reference {
namespace {

/// A token's logits, scaled and moved.
struct Logits {
  const float* values;
  const StreamGateOptions& options;
  int64_t streams;

  double operator()(int64_t kind, int64_t i) const {
    const int64_t at = kind * streams + i;
    return static_cast<double>(values[at]) * host_ptr<float>(options.scale)[kind] +
           host_ptr<float>(options.base)[at];
  }
};

/// A matrix of streams by streams.
class Mix {
 public:
  explicit Mix(int64_t size) : size_(size), values_(static_cast<size_t>(size * size)) {}

  double& at(int64_t row, int64_t col) { return values_[static_cast<size_t>(row * size_ + col)]; }
  void soften_row(int64_t row, double eps) {
    double most = at(row, 0);
    for (int64_t j = 1; j < size_; ++j) most = std::max(most, at(row, j));
    double sum = 0.0;
    for (int64_t j = 0; j < size_; ++j) sum += at(row, j) = std::exp(at(row, j) - most);
    for (int64_t j = 0; j < size_; ++j) at(row, j) = at(row, j) / sum + eps;
  }
  void divide_columns(double eps) {
    for (int64_t j = 0; j < size_; ++j) {
      double sum = eps;
      for (int64_t i = 0; i < size_; ++i) sum += at(i, j);
      for (int64_t i = 0; i < size_; ++i) at(i, j) /= sum;
    }
  }
  void divide_rows(double eps) {
    for (int64_t i = 0; i < size_; ++i) {
      double sum = eps;
      for (int64_t j = 0; j < size_; ++j) sum += at(i, j);
      for (int64_t j = 0; j < size_; ++j) at(i, j) /= sum;
    }
  }

 private:
  int64_t size_;
  std::vector<double> values_;
};

}  // namespace

void run(Reference& /*reference*/, const ops::ReadStreams& op) {
  const RowsView from(op.logits);
  const RowsView to(op.out);
  const RowsView streamed(op.x);
  const int64_t streams = op.x.dim(1);
  for (int64_t t = 0; t < from.rows; ++t) {
    const Logits logit{from.row(t), op.options, streams};
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (int64_t i = 0; i < streams; ++i) {
        sum += (sigmoid(logit(0, i)) + op.options.eps) * streamed.row(t * streams + i)[c];
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
    for (int64_t i = 0; op.kinds() > 1 && i < streams; ++i) {
      RowsView(op.gates.write).row(t)[i] =
          static_cast<float>(op.options.magnitude * sigmoid(logit(1, i)) + op.options.write_eps);
    }
    if (op.kinds() < 3) continue;
    Mix matrix(streams);
    for (int64_t i = 0; i < streams; ++i) {
      for (int64_t j = 0; j < streams; ++j) matrix.at(i, j) = logit(2, i * streams + j);
      matrix.soften_row(i, op.options.eps);
    }
    matrix.divide_columns(op.options.eps);
    for (int64_t k = 1; k < op.options.iterations; ++k) {
      matrix.divide_rows(op.options.eps);
      matrix.divide_columns(op.options.eps);
    }
    for (int64_t i = 0; i < streams; ++i) {
      for (int64_t j = 0; j < streams; ++j) {
        RowsView(op.gates.mix).row(t * streams + i)[j] = static_cast<float>(matrix.at(i, j));
      }
    }
  }
}

}  // namespace moeflux::reference
