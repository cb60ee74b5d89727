// The reference's residuals of several streams, and pools of rows.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backend/reference/reference_encoder.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"
#include "base/check.h"

namespace moeflux {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

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

void ReferenceEncoder::read_streams(Tensor out, const StreamGates& gates, Tensor x, Tensor logits,
                                    const StreamGateOptions& options) {
  const RowsView from(logits);
  const RowsView to(out);
  const RowsView streamed(x);
  const int64_t streams = x.dim(1);
  const bool reads_alone = gates.write.is_null();
  MF_CHECK(to.rows == x.dim(0) && to.cols == streamed.cols &&
           (reads_alone || gates.write.dim(1) == streams) &&
           from.cols == (reads_alone ? 1 : 2 + streams) * streams &&
           options.base.num_elements() == from.cols &&
           options.scale.num_elements() == (reads_alone ? 1 : 3) && streams <= kStreamsMax);
  for (int64_t t = 0; t < from.rows; ++t) {
    const Logits logit{from.row(t), options, streams};
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (int64_t i = 0; i < streams; ++i) {
        sum += (sigmoid(logit(0, i)) + options.eps) * streamed.row(t * streams + i)[c];
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
    if (reads_alone) continue;
    Mix matrix(streams);
    for (int64_t i = 0; i < streams; ++i) {
      RowsView(gates.write).row(t)[i] = static_cast<float>(2.0 * sigmoid(logit(1, i)));
      for (int64_t j = 0; j < streams; ++j) matrix.at(i, j) = logit(2, i * streams + j);
      matrix.soften_row(i, options.eps);
    }
    matrix.divide_columns(options.eps);
    for (int64_t k = 1; k < options.iterations; ++k) {
      matrix.divide_rows(options.eps);
      matrix.divide_columns(options.eps);
    }
    for (int64_t i = 0; i < streams; ++i) {
      for (int64_t j = 0; j < streams; ++j) {
        RowsView(gates.mix).row(t * streams + i)[j] = static_cast<float>(matrix.at(i, j));
      }
    }
  }
}

void ReferenceEncoder::expand_streams(Tensor out, Tensor x, Tensor branch,
                                      const StreamGates& gates) {
  const RowsView to(out);
  const RowsView from(x);
  const RowsView added(branch);
  const int64_t streams = x.dim(1);
  MF_CHECK(out.shape == x.shape && added.rows == x.dim(0) && added.cols == from.cols);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    for (int64_t j = 0; j < streams; ++j) {
      const double given = RowsView(gates.write).row(t)[j];
      const double write = gates.mix.is_null() ? 2.0 * sigmoid(given) : given;
      for (int64_t c = 0; c < from.cols; ++c) {
        double sum = write * added.row(t)[c];
        if (gates.mix.is_null()) {
          sum += from.row(t * streams + j)[c];
        } else {
          for (int64_t i = 0; i < streams; ++i) {
            sum += static_cast<double>(RowsView(gates.mix).row(t * streams + i)[j]) *
                   from.row(t * streams + i)[c];
          }
        }
        to.row(t * streams + j)[c] = static_cast<float>(sum);
      }
    }
  }
}

void ReferenceEncoder::sum_gated(Tensor out, Tensor x, Tensor gates) {
  const RowsView to(out);
  const RowsView from(x);
  const RowsView gate(gates);
  const int64_t streams = x.dim(1);
  MF_CHECK(x.shape == gates.shape && to.rows == x.dim(0) && to.cols == from.cols);
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (int64_t j = t * streams; j < (t + 1) * streams; ++j) {
        sum += from.row(j)[c] * sigmoid(gate.row(j)[c]);
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
  }
}

void ReferenceEncoder::root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions& options) {
  const RowsView to(out);
  const RowsView left(a);
  const RowsView right(b);
  MF_CHECK(a.shape == b.shape && out.num_elements() == left.rows);
  for (int64_t r = 0; r < left.rows; ++r) {
    const std::span<const float> row(left.row(r), static_cast<size_t>(left.cols));
    const double dot = reference::dot(row, right.row(r)) * options.scale;
    const double root = std::sqrt(std::max(std::abs(dot), static_cast<double>(options.least)));
    to.row(r / to.cols)[r % to.cols] = static_cast<float>(dot < 0.0    ? -root
                                                          : dot == 0.0 ? 0.0
                                                                       : root);
  }
}

namespace {

/// A sequence's rows of pool_rows().
struct PoolRows {
  RowsView x;
  RowsView gate;      // of x where there is none
  const float* bias;  // [unit, x.cols], or null
  float* state;       // [kept rows, x | gate]
  int64_t state_cols;
  int64_t unit;
  bool overlaps;

  bool weighs() const { return bias != nullptr; }
  int64_t kept_at(int64_t position) const {
    return overlaps ? position % (2 * unit) : position % unit;
  }
  /// The first position of the pool of a token, with those that it has from before.
  int64_t begin(int64_t position) const {
    const int64_t own = position - position % unit;
    return overlaps ? std::max<int64_t>(0, own - unit) : own;
  }

  struct Member {
    double x;
    double weight;
  };
  /// A column of out, of the token at position `s` to the one in `row` at `position`.
  Member member(int64_t row, int64_t position, int64_t s, int64_t col) const {
    const int64_t back = position - s;
    if (overlaps && s >= position - position % unit) col += x.cols / 2;
    const float* kept = state + kept_at(s) * state_cols;
    Member member{back <= row ? x.row(row - back)[col] : kept[col], 0.0};
    if (!weighs()) return member;
    member.weight = back <= row ? gate.row(row - back)[col] : kept[x.cols + col];
    member.weight += bias[s % unit * x.cols + col];
    return member;
  }
  float pooled(int64_t row, int64_t position, int64_t col) const {
    double most = -INFINITY;
    for (int64_t s = begin(position); s <= position; ++s) {
      most = std::max(most, member(row, position, s, col).weight);
    }
    double total = 0.0;
    double sum = 0.0;
    for (int64_t s = begin(position); s <= position; ++s) {
      const Member own = member(row, position, s, col);
      const double share = std::exp(own.weight - most);
      total += share;
      sum += share * own.x;
    }
    return static_cast<float>(sum / total);
  }
  void keep(int64_t row, int64_t position) const {
    if (!overlaps && position % unit == unit - 1) return;
    float* to = state + kept_at(position) * state_cols;
    std::copy_n(x.row(row), x.cols, to);
    if (weighs()) std::copy_n(gate.row(row), x.cols, to + x.cols);
  }
};

}  // namespace

void ReferenceEncoder::pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor positions,
                                 std::span<const StateRows> sequences, int64_t unit) {
  const bool weighs = !gates.gate.is_null();
  MF_CHECK(out.dim(0) == x.dim(0) && out.dim(1) * (gates.overlaps ? 2 : 1) == x.dim(1) &&
           unit >= 2 && unit <= kPoolMax && positions.num_elements() == x.dim(0) &&
           (weighs || !gates.overlaps));
  for_each_sequence(sequences, x.dim(0), [&](const StateRows& s, const auto& part) {
    const Tensor own = part(x);
    const RowsView to(part(out));
    MF_CHECK(s.state.dim(0) == gates.kept_rows(unit) &&
             s.state.dim(1) == (weighs ? 2 : 1) * x.dim(1));
    const PoolRows rows{RowsView(own),
                        RowsView(weighs ? part(gates.gate) : own),
                        weighs ? host_ptr<float>(gates.bias) : nullptr,
                        host_ptr<float>(s.state),
                        s.state.dim(1),
                        unit,
                        gates.overlaps};
    const int32_t* position = host_ptr<int32_t>(part(positions));
    for (int64_t t = 0; t < s.rows; ++t) {
      for (int64_t c = 0; c < to.cols; ++c) to.row(t)[c] = rows.pooled(t, position[t], c);
    }
    for (int64_t t = 0; t < s.rows; ++t) rows.keep(t, position[t]);
  });
}

}  // namespace moeflux
