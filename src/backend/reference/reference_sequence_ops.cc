// The reference's operations along a sequence: attention, convolution and the delta rule.
#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/reference/cached_rows.h"
#include "backend/reference/reference_encoder.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"
#include "base/check.h"

namespace moeflux {

using reference::append_to_cache;
using reference::read_cached;

void ReferenceEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                                 std::span<const KvRows> sequences,
                                 const AttentionOptions& options) {
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    AttentionOptions own = options;
    if (!options.selected.is_null()) own.selected.ids = part(options.selected.ids);
    attend(part(out), part(q), part(k), part(v), s.kv, own);
  });
}

namespace {

// The positions that row t's heads of a kv head attend to.
std::vector<int64_t> attended(const KvView& kv, const AttentionOptions& options, int64_t t,
                              int64_t group) {
  const int64_t position = kv.length + t;
  std::vector<int64_t> positions;
  const KeySelection& selected = options.selected;
  if (selected.is_null() || position < selected.dense_end()) {
    const int64_t end = position + 1;
    const int64_t begin = options.window > 0 ? std::max<int64_t>(0, end - options.window) : 0;
    for (int64_t s = begin; s < end; ++s) positions.push_back(s);
    return positions;
  }
  const int32_t* ids = host_ptr<int32_t>(selected.ids.slice(0, t, 1)) + group * selected.most();
  for (int64_t i = 0; i < selected.most(); ++i) {
    const int64_t first = ids[i] * selected.unit;
    for (int64_t s = first; s < std::min(first + selected.unit, position + 1); ++s) {
      positions.push_back(s);
    }
  }
  return positions;
}

}  // namespace

void ReferenceEncoder::attend(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                              const KvView& kv, const AttentionOptions& options) {
  const RowsView queries(q);
  const RowsView outs(out);
  const int64_t n = q.dim(0);
  const int64_t heads = q.dim(1);
  const int64_t kv_heads = k.dim(1);
  MF_CHECK(heads % kv_heads == 0 && k.dim(0) == n && q.shape.back() == k.shape.back());
  append_to_cache(kv, kv.k_pages, k);
  if (!v.is_null()) append_to_cache(kv, kv.v_pages, v);
  std::vector<double> scores;
  std::vector<float> space(static_cast<size_t>(std::max(queries.cols, outs.cols)));
  std::vector<double> sum(static_cast<size_t>(outs.cols));
  const KeySelection& selected = options.selected;
  MF_CHECK(selected.is_null() || (options.window == 0 && selected.ids.is_contiguous() &&
                                  kv_heads % selected.groups() == 0));
  const int64_t kv_heads_of_group = selected.is_null() ? kv_heads : kv_heads / selected.groups();
  for (int64_t t = 0; t < n; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv_head = h / (heads / kv_heads);
      const std::vector<int64_t> keys = attended(kv, options, t, kv_head / kv_heads_of_group);
      const std::span<const float> query(queries.row(t * heads + h),
                                         static_cast<size_t>(queries.cols));
      scores.assign(keys.size(), 0.0);
      const bool has_sink = !options.sinks.is_null();
      const double sink = has_sink ? host_ptr<float>(options.sinks)[h] : -INFINITY;
      double largest = sink;
      for (size_t i = 0; i < keys.size(); ++i) {
        const float* key = read_cached(kv, kv.k_pages, keys[i], kv_head, space);
        scores[i] = reference::dot(query, key) * options.scale;
        largest = std::max(largest, scores[i]);
      }
      double total = has_sink ? std::exp(sink - largest) : 0.0;
      std::fill(sum.begin(), sum.end(), 0.0);
      for (size_t i = 0; i < keys.size(); ++i) {
        const double p = std::exp(scores[i] - largest);
        const float* value = read_cached(kv, kv.v_pages, keys[i], kv_head, space);
        total += p;
        for (size_t d = 0; d < sum.size(); ++d) sum[d] += p * value[d];
      }
      float* result = outs.row(t * heads + h);
      for (size_t d = 0; d < sum.size(); ++d) result[d] = static_cast<float>(sum[d] / total);
    }
  }
}

namespace {

void convolve(const Tensor& out, const Tensor& x, const Tensor& weight, Activation activation,
              const Tensor& state) {
  const RowsView to(out);
  const RowsView from(x);
  const int64_t channels = to.cols;
  const int64_t taps = weight.dim(1);
  MF_CHECK(from.cols == channels && weight.dim(0) == channels && state.dim(0) == taps - 1 &&
           state.dim(1) == channels && state.is_contiguous());
  const float* w = host_ptr<float>(weight);
  float* past = host_ptr<float>(state);  // row i is the input taps - 1 - i tokens before x
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0.0;
      for (int64_t j = 0; j + 1 < taps; ++j) {
        sum += static_cast<double>(w[c * taps + j]) * past[j * channels + c];
      }
      sum += static_cast<double>(w[c * taps + taps - 1]) * from.row(t)[c];
      to.row(t)[c] = static_cast<float>(reference::activate(sum, activation));
    }
    std::copy(past + channels, past + (taps - 1) * channels, past);
    std::copy_n(from.row(t), channels, past + (taps - 2) * channels);
  }
}

}  // namespace

void ReferenceEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, Activation activation,
                                   std::span<const StateRows> sequences) {
  for_each_sequence(sequences, x.dim(0), [&](const StateRows& s, const auto& part) {
    convolve(part(out), part(x), weight, activation, s.state);
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

void update_delta(const DeltaTensors& tensors, const GatedDeltaOptions& o) {
  const auto& [out, qkv, a, b, a_log, dt_bias, state] = tensors;
  const RowsView rows(qkv);
  const RowsView to(out);
  const RowsView a_rows(a);
  const RowsView b_rows(b);
  MF_CHECK(rows.cols == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && state.is_contiguous());
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
      const double log_decay =
          -std::exp(static_cast<double>(host_ptr<float>(a_log)[head])) *
          softplus(static_cast<double>(a_rows.row(t)[head]) + host_ptr<float>(dt_bias)[head]);
      const double decay = std::exp(log_decay);
      float* s = host_ptr<float>(state) + head * o.key_dim * o.value_dim;
      std::fill(memory.begin(), memory.end(), 0.0);
      for (int64_t i = 0; i < o.key_dim; ++i) {
        for (int64_t j = 0; j < o.value_dim; ++j) {
          memory[static_cast<size_t>(j)] +=
              decay * s[i * o.value_dim + j] * k[static_cast<size_t>(i)];
        }
      }
      float* result = to.row(t * o.value_heads + head);
      for (int64_t j = 0; j < o.value_dim; ++j) {
        const double delta = beta * (v[j] - memory[static_cast<size_t>(j)]);
        double sum = 0.0;
        for (int64_t i = 0; i < o.key_dim; ++i) {
          float& cell = s[i * o.value_dim + j];
          const double updated = decay * cell + k[static_cast<size_t>(i)] * delta;
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

}  // namespace moeflux
