#include "backend/ops/pool_rows.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_context.h"
#include "backend/sequence_rows.h"

namespace moeflux::cpu {
namespace {

struct PoolMembers {
  std::vector<const float*> rows;
};

/// The tensors of one sequence.
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

void run(CpuContext& context, const ops::PoolRows& op) {
  const bool weighs = !op.gates.gate.is_null();
  const bool overlaps = op.gates.overlaps;
  const int64_t pointers = 3 * PoolOp::members_max(op.unit, overlaps);
  const float** members =
      workspace(context.spaces.of<PoolMembers>().rows, context.workers.threads() * pointers);
  for_each_part(op, [&](const ops::PoolRows& one) {
    const PoolOp pool{context.select,
                      RowsView(one.x),
                      RowsView(weighs ? one.gates.gate : one.x),
                      weighs ? host_ptr<float>(one.gates.bias) : nullptr,
                      host_ptr<float>(one.sequences.front().state),
                      host_ptr<int32_t>(one.positions),
                      one.unit,
                      overlaps,
                      RowsView(one.out)};
    const int64_t rows = one.rows();
    context.workers.for_tasks(
        rows, rows * op.x.dim(1) * op.unit * 8,
        [&](int64_t row, int64_t thread) { pool.pool(row, members + thread * pointers); });
    pool.keep(rows);
  });
}

}  // namespace moeflux::cpu
