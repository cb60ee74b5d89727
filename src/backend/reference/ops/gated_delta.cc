// The gated delta rule, as its formula reads.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/cells.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"

namespace moeflux::reference {
namespace {

// x / sqrt(sum x^2 + eps) * scale, in f64.
std::vector<double> l2_normalized(const float* x, int64_t n, double scale) {
  constexpr double kEps = 1e-6;
  double squares = 0.0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    out[static_cast<size_t>(i)] = x[i] / std::sqrt(squares + kEps) * scale;
  }
  return out;
}

// The decay of each row of a head's state.
std::vector<double> row_decays(const float* a, const float* dt_bias, double rate, int64_t head,
                               const GatedDeltaOptions& o) {
  std::vector<double> decays(static_cast<size_t>(o.key_dim));
  for (int64_t i = 0; i < o.key_dim; ++i) {
    const int64_t at = o.row_decay ? head * o.key_dim + i : head;
    const double input = static_cast<double>(a[at]) + dt_bias[at];
    const double log_decay = o.decay_bound != 0.0f
                                 ? o.decay_bound * activate(rate * input, Activation::kSigmoid)
                                 : -rate * softplus(input);
    decays[static_cast<size_t>(i)] = std::exp(log_decay);
  }
  return decays;
}

void update(const ops::GatedDelta& op) {
  const GatedDeltaOptions& o = op.options;
  const RowsView rows(op.qkv);
  const RowsView to(op.out);
  const RowsView a_rows(op.a);
  const RowsView b_rows(op.b);
  std::vector<double> memory(static_cast<size_t>(o.value_dim));
  for (int64_t t = 0; t < rows.rows; ++t) {
    for (int64_t head = 0; head < o.value_heads; ++head) {
      const int64_t key_head = o.key_head_of(head);
      const float* row = rows.row(t);
      const std::vector<double> q = l2_normalized(row + key_head * o.key_dim, o.key_dim,
                                                  1.0 / std::sqrt(static_cast<double>(o.key_dim)));
      const std::vector<double> k =
          l2_normalized(row + (o.key_heads + key_head) * o.key_dim, o.key_dim, 1.0);
      const float* v = row + 2 * o.key_heads * o.key_dim + head * o.value_dim;
      const double beta = activate(b_rows.row(t)[head], Activation::kSigmoid);
      const std::vector<double> decays =
          row_decays(a_rows.row(t), host_ptr<float>(op.dt_bias),
                     std::exp(static_cast<double>(host_ptr<float>(op.a_log)[head])), head, o);
      float* s = host_ptr<float>(op.sequences.front().state) + head * o.key_dim * o.value_dim;
      std::fill(memory.begin(), memory.end(), 0.0);
      for (int64_t i = 0; i < o.key_dim; ++i) {
        const double recalled = decays[static_cast<size_t>(i)] * k[static_cast<size_t>(i)];
        for (int64_t j = 0; j < o.value_dim; ++j) {
          memory[static_cast<size_t>(j)] += s[i * o.value_dim + j] * recalled;
        }
      }
      float* result = to.row(t * o.value_heads + head);
      for (int64_t j = 0; j < o.value_dim; ++j) {
        const double delta = beta * (v[j] - memory[static_cast<size_t>(j)]);
        double sum = 0.0;
        for (int64_t i = 0; i < o.key_dim; ++i) {
          float& cell = s[i * o.value_dim + j];
          const double updated =
              decays[static_cast<size_t>(i)] * cell + k[static_cast<size_t>(i)] * delta;
          cell = static_cast<float>(updated);
          sum += updated * q[static_cast<size_t>(i)];
        }
        result[j] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace

void run(Reference& /*reference*/, const ops::GatedDelta& op) { for_each_part(op, update); }

}  // namespace moeflux::reference
