// Rows of tokens pooled, as its formula reads.
#include <algorithm>
#include <cmath>

#include "backend/reference/cells.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
namespace {

/// A sequence's rows of an operation.
struct Pool {
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

void run(Reference& /*reference*/, const ops::PoolRows& op) {
  for_each_part(op, [](const ops::PoolRows& one) {
    const bool weighs = !one.gates.gate.is_null();
    const Tensor& state = one.sequences.front().state;
    const RowsView to(one.out);
    const Pool rows{RowsView(one.x),
                    RowsView(weighs ? one.gates.gate : one.x),
                    weighs ? host_ptr<float>(one.gates.bias) : nullptr,
                    host_ptr<float>(state),
                    state.dim(1),
                    one.unit,
                    one.gates.overlaps};
    const int32_t* position = host_ptr<int32_t>(one.positions);
    for (int64_t t = 0; t < to.rows; ++t) {
      for (int64_t c = 0; c < to.cols; ++c) to.row(t)[c] = rows.pooled(t, position[t], c);
    }
    for (int64_t t = 0; t < to.rows; ++t) rows.keep(t, position[t]);
  });
}

}  // namespace moeflux::reference
