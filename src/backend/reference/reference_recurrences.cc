// The reference's recurrences: convolution, the delta rule and the selective scan.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/reference_encoder.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"
#include "base/check.h"

namespace moeflux {
namespace {

void convolve(const Tensor& out, const Tensor& x, const Tensor& weight, const ConvOptions& options,
              const Tensor& state) {
  const RowsView to(out);
  const RowsView from(x);
  const int64_t channels = to.cols;
  const int64_t taps = weight.dim(1);
  MF_CHECK(from.cols == channels && weight.dim(0) == channels && state.dim(0) == taps - 1 &&
           state.dim(1) == channels && state.is_contiguous());
  MF_CHECK(options.bias.is_null() || options.bias.num_elements() == channels);
  const float* w = host_ptr<float>(weight);
  float* past = host_ptr<float>(state);  // row i is the input taps - 1 - i tokens before x
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = options.bias.is_null() ? 0.0 : host_ptr<float>(options.bias)[c];
      for (int64_t j = 0; j + 1 < taps; ++j) {
        sum += static_cast<double>(w[c * taps + j]) * past[j * channels + c];
      }
      sum += static_cast<double>(w[c * taps + taps - 1]) * from.row(t)[c];
      to.row(t)[c] = static_cast<float>(reference::activate(sum, options.activation));
    }
    std::copy(past + channels, past + (taps - 1) * channels, past);
    std::copy_n(from.row(t), channels, past + (taps - 2) * channels);
  }
}

}  // namespace

void ReferenceEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, const ConvOptions& options,
                                   std::span<const StateRows> sequences) {
  for_each_sequence(sequences, x.dim(0), [&](const StateRows& s, const auto& part) {
    convolve(part(out), part(x), weight, options, s.state);
  });
}

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

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

/// The tensors of gated_delta(), of one sequence.
struct DeltaTensors {
  Tensor out;
  Tensor qkv;
  Tensor a;
  Tensor b;
  Tensor a_log;
  Tensor dt_bias;
  Tensor state;
};

// The decay of each row of a head's state.
std::vector<double> row_decays(const float* a, const float* dt_bias, double rate, int64_t head,
                               const GatedDeltaOptions& o) {
  std::vector<double> decays(static_cast<size_t>(o.key_dim));
  for (int64_t i = 0; i < o.key_dim; ++i) {
    const int64_t at = o.row_decay ? head * o.key_dim + i : head;
    const double input = static_cast<double>(a[at]) + dt_bias[at];
    const double log_decay =
        o.decay_bound != 0.0f
            ? o.decay_bound * reference::activate(rate * input, Activation::kSigmoid)
            : -rate * softplus(input);
    decays[static_cast<size_t>(i)] = std::exp(log_decay);
  }
  return decays;
}

void update_delta(const DeltaTensors& tensors, const GatedDeltaOptions& o) {
  const auto& [out, qkv, a, b, a_log, dt_bias, state] = tensors;
  const RowsView rows(qkv);
  const RowsView to(out);
  const RowsView a_rows(a);
  const RowsView b_rows(b);
  MF_CHECK(rows.cols == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && state.is_contiguous());
  MF_CHECK(a_rows.cols == o.decays() && dt_bias.num_elements() == o.decays());
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
      const double beta = reference::activate(b_rows.row(t)[head], Activation::kSigmoid);
      const std::vector<double> decays =
          row_decays(a_rows.row(t), host_ptr<float>(dt_bias),
                     std::exp(static_cast<double>(host_ptr<float>(a_log)[head])), head, o);
      float* s = host_ptr<float>(state) + head * o.key_dim * o.value_dim;
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

void ReferenceEncoder::gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log,
                                   Tensor dt_bias, std::span<const StateRows> sequences,
                                   const GatedDeltaOptions& o) {
  for_each_sequence(sequences, qkv.dim(0), [&](const StateRows& s, const auto& part) {
    update_delta({part(out), part(qkv), part(a), part(b), a_log, dt_bias, s.state}, o);
  });
}

namespace {

/// The tensors of selective_scan(), of one sequence.
struct ScanTensors {
  Tensor out;
  Tensor xbc;
  Tensor dt;
  Tensor state;
};

void scan(const ScanTensors& tensors, const ScanWeights& weights, const ScanOptions& o) {
  const RowsView rows(tensors.xbc);
  const RowsView to(tensors.out);
  const RowsView dt(tensors.dt);
  MF_CHECK(rows.cols == o.row_width() && o.heads % o.groups == 0 && dt.cols == o.heads &&
           to.cols == o.head_dim && tensors.state.is_contiguous());
  const int64_t inner = o.heads * o.head_dim;
  for (int64_t t = 0; t < rows.rows; ++t) {
    for (int64_t head = 0; head < o.heads; ++head) {
      const float* x = rows.row(t) + head * o.head_dim;
      const float* b = rows.row(t) + inner + o.group_of(head) * o.state_dim;
      const float* c = b + o.groups * o.state_dim;
      const double step =
          softplus(static_cast<double>(dt.row(t)[head]) + host_ptr<float>(weights.dt_bias)[head]);
      const double rate = std::exp(static_cast<double>(host_ptr<float>(weights.a_log)[head]));
      const double decay = std::exp(-rate * step);
      const double skip = host_ptr<float>(weights.skip)[head];
      float* s = host_ptr<float>(tensors.state) + head * o.state_dim * o.head_dim;
      float* result = to.row(t * o.heads + head);
      for (int64_t j = 0; j < o.head_dim; ++j) {
        double sum = skip * x[j];
        for (int64_t i = 0; i < o.state_dim; ++i) {
          float& cell = s[i * o.head_dim + j];
          const double updated = decay * cell + step * x[j] * b[i];
          cell = static_cast<float>(updated);
          sum += updated * c[i];
        }
        result[j] = static_cast<float>(sum);
      }
    }
  }
}

}  // namespace

void ReferenceEncoder::selective_scan(Tensor out, Tensor xbc, Tensor dt, const ScanWeights& weights,
                                      std::span<const StateRows> sequences, const ScanOptions& o) {
  for_each_sequence(sequences, xbc.dim(0), [&](const StateRows& s, const auto& part) {
    scan({part(out), part(xbc), part(dt), s.state}, weights, o);
  });
}

}  // namespace moeflux
