// The reference's operations along a sequence: attention, convolution and the delta rule.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/reference/reference_encoder.h"
#include "backend/reference/scalar.h"
#include "backend/sequence_rows.h"
#include "base/check.h"
#include "quant/q8_rows.h"

namespace moeflux {
namespace {

// The cached row of a token, wherever its page is.
std::byte* cached(const KvView& kv, std::span<const Tensor> pages, int64_t position, int64_t head) {
  const auto page = static_cast<size_t>(position / kv.page_tokens) % pages.size();
  const Tensor& tensor = pages[page];
  const int64_t at = position % kv.page_tokens * tensor.strides[0] + head * tensor.strides[1];
  return host_ptr<std::byte>(tensor) + at * dtype_bits(tensor.dtype) / 8;
}

// The first elements of the same as floats, in `space` unless they are floats where they lie.
const float* read_cached(const KvView& kv, std::span<const Tensor> pages, int64_t position,
                         int64_t head, std::span<float> space) {
  const std::byte* row = cached(kv, pages, position, head);
  if (pages.front().dtype == DType::kF32) return reinterpret_cast<const float*>(row);
  if (pages.front().dtype == DType::kI8) {
    const int64_t cols = q8_rows::cols_of(pages.front().dim(2));
    q8_rows::decode(space.first(std::min(space.size(), static_cast<size_t>(cols))), row, cols);
    return space.data();
  }
  for (size_t i = 0; i < space.size(); ++i) {
    space[i] = load_float(row, static_cast<int64_t>(i), pages.front().dtype);
  }
  return space.data();
}

void append_to_cache(const KvView& kv, std::span<const Tensor> pages, const Tensor& x) {
  const RowsView rows(x);
  const int64_t heads = x.dim(1);
  const DType dtype = pages.front().dtype;
  MF_CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kI8);
  for (int64_t r = 0; r < rows.rows; ++r) {
    std::byte* to = cached(kv, pages, kv.length + r / heads, r % heads);
    if (dtype == DType::kI8) {
      const auto row_bytes = static_cast<size_t>(pages.front().dim(2));
      q8_rows::encode({to, row_bytes}, {rows.row(r), static_cast<size_t>(rows.cols)});
      continue;
    }
    for (int64_t i = 0; i < rows.cols; ++i) {
      const float value = rows.row(r)[i];
      if (dtype == DType::kF16) {
        const F16 half = to_f16(value);
        std::memcpy(to + 2 * i, &half, sizeof(half));
      } else {
        std::memcpy(to + 4 * i, &value, sizeof(value));
      }
    }
  }
}

}  // namespace

void ReferenceEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                                 std::span<const KvRows> sequences,
                                 const AttentionOptions& options) {
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    attend(part(out), part(q), part(k), part(v), s.kv, options);
  });
}

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
  for (int64_t t = 0; t < n; ++t) {
    const int64_t end = kv.length + t + 1;
    const int64_t begin = options.window > 0 ? std::max<int64_t>(0, end - options.window) : 0;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv_head = h / (heads / kv_heads);
      const std::span<const float> query(queries.row(t * heads + h),
                                         static_cast<size_t>(queries.cols));
      scores.assign(static_cast<size_t>(end - begin), 0.0);
      const bool has_sink = !options.sinks.is_null();
      const double sink = has_sink ? host_ptr<float>(options.sinks)[h] : -INFINITY;
      double largest = sink;
      for (int64_t s = begin; s < end; ++s) {
        double& score = scores[static_cast<size_t>(s - begin)];
        const float* key = read_cached(kv, kv.k_pages, s, kv_head, space);
        score = reference::dot(query, key) * options.scale;
        largest = std::max(largest, score);
      }
      double total = has_sink ? std::exp(sink - largest) : 0.0;
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t s = begin; s < end; ++s) {
        const double p = std::exp(scores[static_cast<size_t>(s - begin)] - largest);
        const float* value = read_cached(kv, kv.v_pages, s, kv_head, space);
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
