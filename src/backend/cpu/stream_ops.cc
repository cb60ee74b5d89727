// Residuals of several streams, and pools of rows.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + portable_exp(-x)); }

/// The gates of one token.
struct TokenGates {
  const float* logits;
  const float* scale;
  const float* base;
  int64_t streams;
  float eps;

  double logit(int64_t kind, int64_t i) const {
    const int64_t at = kind * streams + i;
    return static_cast<double>(logits[at]) * scale[kind] + base[at];
  }

  /// Every row sums up to 1 and streams times eps.
  void soften(float* mix) const {
    for (int64_t i = 0; i < streams; ++i) {
      std::array<double, kStreamsMax> row{};
      double most = logit(2, i * streams);
      for (int64_t j = 0; j < streams; ++j) {
        row[static_cast<size_t>(j)] = logit(2, i * streams + j);
        most = std::max(most, row[static_cast<size_t>(j)]);
      }
      double sum = 0.0;
      for (int64_t j = 0; j < streams; ++j) {
        double& value = row[static_cast<size_t>(j)];
        value = portable_exp(value - most);
        sum += value;
      }
      for (int64_t j = 0; j < streams; ++j) {
        mix[i * streams + j] = static_cast<float>(row[static_cast<size_t>(j)] / sum + eps);
      }
    }
  }
};

/// Divides `count` runs of `length` numbers by their sums.
struct Runs {
  int64_t count;
  int64_t apart;  // from one run to the next
  int64_t length;
  int64_t step;  // within a run
};
void divide_by_sums(float* x, const Runs& runs, float eps) {
  for (int64_t r = 0; r < runs.count; ++r) {
    float* run = x + r * runs.apart;
    float sum = eps;
    for (int64_t i = 0; i < runs.length; ++i) sum += run[i * runs.step];
    const float inverse = 1.0f / sum;
    for (int64_t i = 0; i < runs.length; ++i) run[i * runs.step] *= inverse;
  }
}

}  // namespace

void CpuEncoder::read_streams(Tensor out, const StreamGates& gates, Tensor x, Tensor logits,
                              const StreamGateOptions& options) {
  flush();
  const RowsView from(logits);
  const RowsView to(out);
  const int64_t streams = x.dim(1);
  const bool reads_alone = gates.write.is_null();
  MF_CHECK(x.is_contiguous() && to.rows == x.dim(0) && to.cols == x.shape.back() &&
           from.cols == (reads_alone ? 1 : 2 + streams) * streams &&
           options.base.num_elements() == from.cols &&
           options.scale.num_elements() == (reads_alone ? 1 : 3) && streams <= kStreamsMax &&
           gates.write.is_contiguous() && gates.mix.is_contiguous());
  if (!status_.ok()) return;
  const Runs rows{streams, streams, streams, 1};
  const Runs columns{streams, 1, streams, streams};
  const int64_t work =
      from.rows * (options.iterations * from.cols * 4 + 512 + 2 * streams * to.cols);
  for_tasks(from.rows, work, [&](int64_t t) {
    const TokenGates token{from.row(t), host_ptr<float>(options.scale),
                           host_ptr<float>(options.base), streams, options.eps};
    std::array<float, kStreamsMax> read{};
    for (int64_t i = 0; i < streams; ++i) {
      read[static_cast<size_t>(i)] = static_cast<float>(sigmoid(token.logit(0, i)) + options.eps);
    }
    kernels_.weighted_sum(to.row(t), host_ptr<float>(x) + t * streams * to.cols, to.cols,
                          read.data(), streams, to.cols);
    if (reads_alone) return;
    for (int64_t i = 0; i < streams; ++i) {
      host_ptr<float>(gates.write)[t * streams + i] =
          static_cast<float>(2.0 * sigmoid(token.logit(1, i)));
    }
    float* mix = host_ptr<float>(gates.mix) + t * streams * streams;
    token.soften(mix);
    divide_by_sums(mix, columns, options.eps);
    for (int64_t k = 1; k < options.iterations; ++k) {
      divide_by_sums(mix, rows, options.eps);
      divide_by_sums(mix, columns, options.eps);
    }
  });
}

void CpuEncoder::sum_gated(Tensor out, Tensor x, Tensor gates) {
  flush();
  const RowsView to(out);
  const int64_t streams = x.dim(1);
  MF_CHECK(x.shape == gates.shape && x.is_contiguous() && gates.is_contiguous() &&
           to.rows == x.dim(0) && to.cols == x.shape.back());
  if (!status_.ok()) return;
  for_tasks(to.rows, 4 * to.rows * to.cols * streams, [&](int64_t t) {
    const int64_t at = t * streams * to.cols;
    kernels_.sum_gated(to.row(t), host_ptr<float>(x) + at, host_ptr<float>(gates) + at, streams,
                       to.cols);
  });
}

void CpuEncoder::root_dots(Tensor out, Tensor a, Tensor b, const RootDotOptions& options) {
  flush();
  const RowsView left(a);
  const RowsView right(b);
  MF_CHECK(a.shape == b.shape && out.num_elements() == left.rows && out.is_contiguous());
  if (!status_.ok()) return;
  float* to = host_ptr<float>(out);
  for_tasks(left.rows, left.rows * left.cols, [&](int64_t r) {
    const float dot = kernels_.dot(left.row(r), right.row(r), left.cols) * options.scale;
    const float size = std::abs(dot);
    const float root = std::sqrt(size < options.least ? options.least : size);
    to[r] = dot < 0.0f ? -root : dot == 0.0f ? 0.0f : root;
  });
}

void CpuEncoder::expand_streams(Tensor out, Tensor x, Tensor branch, const StreamGates& gates) {
  flush();
  const RowsView to(out);
  const RowsView from(x);
  const RowsView added(branch);
  const int64_t streams = x.dim(1);
  MF_CHECK(out.shape == x.shape && out.is_contiguous() && x.is_contiguous() &&
           added.rows == x.dim(0) && added.cols == from.cols && streams <= kStreamsMax);
  if (!status_.ok()) return;
  const float* write = host_ptr<float>(gates.write);
  const float* mix = floats_or_null(gates.mix);
  for_tasks(added.rows, to.rows * to.cols * (streams + 1), [&](int64_t t) {
    std::array<float, kStreamsMax> made{};
    for (int64_t i = 0; mix == nullptr && i < streams; ++i) {
      made[static_cast<size_t>(i)] = static_cast<float>(2.0 * sigmoid(write[t * streams + i]));
    }
    kernels_.expand_streams({.x = from.row(t * streams),
                             .branch = added.row(t),
                             .write = mix == nullptr ? made.data() : write + t * streams,
                             .mix = mix == nullptr ? nullptr : mix + t * streams * streams,
                             .streams = streams,
                             .n = from.cols,
                             .out = to.row(t * streams)});
  });
}

namespace {

/// The tensors of pool_rows(), of one sequence.
struct PoolOp {
  const SelectKernels& kernels;
  RowsView x;
  RowsView gate;  // of x where there is none
  const float* bias;
  float* state;  // [kept rows, x | gate]
  const int32_t* positions;
  int64_t unit;
  bool overlaps;
  RowsView out;

  int64_t state_cols() const { return (bias == nullptr ? 1 : 2) * x.cols; }
  int64_t kept_at(int64_t position) const { return position % (overlaps ? 2 * unit : unit); }
  /// Tokens that a pool has, at most.
  static int64_t members_max(int64_t unit, bool overlaps) { return overlaps ? 2 * unit : unit; }

  /// `members` has room for three pointers of each of members_max().
  void pool(int64_t row, const float** members) const {
    const int64_t position = positions[row];
    const int64_t own = position - position % unit;
    const int64_t begin = overlaps ? std::max<int64_t>(0, own - unit) : own;
    const int64_t count = position + 1 - begin;
    const float** gates = members + members_max(unit, overlaps);
    const float** biases = gates + members_max(unit, overlaps);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t s = begin + j;
      const int64_t from = row - (position - s);
      const int64_t half = overlaps && s >= own ? out.cols : 0;
      const float* kept = state + kept_at(s) * state_cols();
      members[j] = (from >= 0 ? x.row(from) : kept) + half;
      gates[j] = (from >= 0 ? gate.row(from) : kept + x.cols) + half;
      biases[j] = bias == nullptr ? nullptr : bias + s % unit * x.cols + half;
    }
    kernels.pool({.x = members,
                  .gates = bias == nullptr ? nullptr : gates,
                  .biases = biases,
                  .count = count,
                  .n = out.cols,
                  .out = out.row(row)});
  }

  /// Keeps the rows that later rows of pools look for.
  void keep(int64_t rows) const {
    for (int64_t row = std::max<int64_t>(0, rows - members_max(unit, overlaps)); row < rows;
         ++row) {
      if (!overlaps && positions[row] % unit == unit - 1) continue;
      float* to = state + kept_at(positions[row]) * state_cols();
      std::copy_n(x.row(row), x.cols, to);
      if (bias != nullptr) std::copy_n(gate.row(row), x.cols, to + x.cols);
    }
  }
};

}  // namespace

void CpuEncoder::pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor positions,
                           std::span<const StateRows> sequences, int64_t unit) {
  flush();
  const bool weighs = !gates.gate.is_null();
  const bool overlaps = gates.overlaps;
  MF_CHECK(out.shape.rank() == 2 && out.dim(0) == x.dim(0) &&
           out.dim(1) * (overlaps ? 2 : 1) == x.dim(1) && unit >= 2 && unit <= kPoolMax &&
           positions.num_elements() == x.dim(0) && (weighs || !overlaps) &&
           (!weighs || gates.bias.num_elements() == unit * x.dim(1)));
  MF_CHECK(list_first_rows(sequences) == x.dim(0));
  if (!status_.ok()) return;
  const int64_t pointers = 3 * PoolOp::members_max(unit, overlaps);
  const float** members = workspace(pooled_rows_, slot_count() * pointers);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const StateRows& s = sequences[i];
    const auto part = [&](const Tensor& rows) { return rows.slice(0, first_rows_[i], s.rows); };
    const PoolOp op{select_,
                    RowsView(part(x)),
                    RowsView(part(weighs ? gates.gate : x)),
                    weighs ? host_ptr<float>(gates.bias) : nullptr,
                    host_ptr<float>(s.state),
                    host_ptr<int32_t>(positions) + first_rows_[i],
                    unit,
                    overlaps,
                    RowsView(part(out))};
    MF_CHECK(s.state.dim(0) == gates.kept_rows(unit) && s.state.dim(1) == op.state_cols());
    for_tasks_in_slots(s.rows, s.rows * x.dim(1) * unit * 8,
                       [&](int64_t row, int64_t slot) { op.pool(row, members + slot * pointers); });
    op.keep(s.rows);
  }
}

}  // namespace moeflux::cpu
