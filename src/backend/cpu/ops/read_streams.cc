#include "backend/ops/read_streams.h"

#include <algorithm>
#include <array>

#include "backend/cpu/cpu_context.h"
#include "backend/cpu/portable_gates.h"
#include "base/portable_math.h"

namespace moeflux::cpu {
namespace {

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

void run(CpuContext& context, const ops::ReadStreams& op) {
  const RowsView from(op.logits);
  const RowsView to(op.out);
  const int64_t streams = op.x.dim(1);
  const Runs rows{streams, streams, streams, 1};
  const Runs columns{streams, 1, streams, streams};
  const int64_t work =
      from.rows * (op.options.iterations * from.cols * 4 + 512 + 2 * streams * to.cols);
  context.workers.for_tasks(from.rows, work, [&](int64_t t) {
    const TokenGates token{from.row(t), host_ptr<float>(op.options.scale),
                           host_ptr<float>(op.options.base), streams, op.options.eps};
    std::array<float, kStreamsMax> read{};
    for (int64_t i = 0; i < streams; ++i) {
      read[static_cast<size_t>(i)] =
          static_cast<float>(sigmoid(token.logit(0, i)) + op.options.eps);
    }
    context.kernels.weighted_sum(to.row(t), host_ptr<float>(op.x) + t * streams * to.cols, to.cols,
                                 read.data(), streams, to.cols);
    for (int64_t i = 0; op.kinds() > 1 && i < streams; ++i) {
      host_ptr<float>(op.gates.write)[t * streams + i] = static_cast<float>(
          op.options.magnitude * sigmoid(token.logit(1, i)) + op.options.write_eps);
    }
    if (op.kinds() < 3) return;
    float* mix = host_ptr<float>(op.gates.mix) + t * streams * streams;
    token.soften(mix);
    divide_by_sums(mix, columns, op.options.eps);
    for (int64_t k = 1; k < op.options.iterations; ++k) {
      divide_by_sums(mix, rows, op.options.eps);
      divide_by_sums(mix, columns, op.options.eps);
    }
  });
}

}  // namespace moeflux::cpu
