#include "backend/reference/reference_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/host_top.h"
#include "base/format.h"

namespace moeflux {
namespace {

double activate(double x, Activation activation) {
  const double sigmoid = 1.0 / (1.0 + std::exp(-x));
  switch (activation) {
    case Activation::kSilu:
      return x * sigmoid;
    case Activation::kSigmoid:
      return sigmoid;
    case Activation::kIdentity:
      return x;
    case Activation::kGeluTanh: {
      constexpr double kSqrtTwoOverPi = 0.79788456080286535588;
      return 0.5 * x * (1.0 + std::tanh(kSqrtTwoOverPi * (x + 0.044715 * x * x * x)));
    }
  }
  __builtin_unreachable();
}

double gated(double gate, double up, const GluOptions& o) {
  if (o.activation != Activation::kSilu) return activate(gate, o.activation) * up;
  const double limit = o.limit;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit) + o.up_offset;
  return up * gate / (1.0 + std::exp(-o.alpha * gate));
}

double bias_at(const Tensor& bias, int64_t i) {
  return bias.is_null() ? 0.0 : load_float(host_ptr<std::byte>(bias), i, bias.dtype);
}

double dot(std::span<const float> a, const float* b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

}  // namespace

std::span<const float> ReferenceEncoder::decoded_row(const Weight& weight, int64_t row) {
  if (can_decode(weight)) {
    row_.resize(static_cast<size_t>(weight.cols));
    decode_row(weight, row, row_);
    return row_;
  }
  row_.assign(static_cast<size_t>(weight.cols), 0.0f);
  if (status_.ok()) {
    status_ =
        make_error(ErrorCode::kUnsupported, "a [{}, {}] weight in format {} of {}", weight.rows,
                   weight.cols, weight.format.to_string(), dtype_name(weight.format.dtype));
  }
  return row_;
}

void ReferenceEncoder::write(Tensor to, std::span<const std::byte> from) {
  MF_CHECK(to.is_contiguous() && to.size_bytes() == from.size());
  if (!from.empty()) std::memcpy(host_ptr<std::byte>(to), from.data(), from.size());
}

Status ReferenceEncoder::read(std::span<std::byte> to, Tensor from) {
  MF_CHECK(from.is_contiguous() && from.size_bytes() == to.size());
  MF_RETURN_IF_ERROR(status_);
  if (!to.empty()) std::memcpy(to.data(), host_ptr<std::byte>(from), to.size());
  return {};
}

void ReferenceEncoder::copy(Tensor out, Tensor x) {
  MF_CHECK(out.shape == x.shape);
  const RowsView to(out);
  const RowsView from(x);
  for (int64_t r = 0; r < to.rows; ++r) std::copy_n(from.row(r), to.cols, to.row(r));
}

void ReferenceEncoder::add(Tensor out, Tensor a, Tensor b) {
  MF_CHECK(out.shape == a.shape && out.shape == b.shape);
  const RowsView to(out);
  const RowsView left(a);
  const RowsView right(b);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) to.row(r)[c] = left.row(r)[c] + right.row(r)[c];
  }
}

void ReferenceEncoder::mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) {
  MF_CHECK(out.shape == x.shape);
  const RowsView to(out);
  const RowsView from(x);
  const RowsView gates(gate);
  MF_CHECK(gates.rows == to.rows && (gates.cols == to.cols || gates.cols == 1));
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) {
      const double g = gates.row(r)[gates.cols == 1 ? 0 : c];
      to.row(r)[c] = static_cast<float>(from.row(r)[c] * activate(g, activation));
    }
  }
}

void ReferenceEncoder::rms_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  MF_CHECK(out.shape == x.shape);
  MF_CHECK(weight.is_null() || weight.num_elements() == x.shape.back());
  const RowsView to(out);
  const RowsView from(x);
  const float* w = weight.is_null() ? nullptr : host_ptr<float>(weight);
  for (int64_t r = 0; r < to.rows; ++r) {
    const float* row = from.row(r);
    double squares = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) squares += static_cast<double>(row[c]) * row[c];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(to.cols) + eps);
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>(row[c] * scale * (w == nullptr ? 1.0f : w[c]));
    }
  }
}

void ReferenceEncoder::add_bias(Tensor x, Tensor bias) {
  const RowsView rows(x);
  MF_CHECK(bias.num_elements() == rows.cols);
  const float* b = host_ptr<float>(bias);
  for (int64_t r = 0; r < rows.rows; ++r) {
    for (int64_t c = 0; c < rows.cols; ++c) rows.row(r)[c] += b[c];
  }
}

void ReferenceEncoder::scale(Tensor out, Tensor x, float factor) {
  MF_CHECK(out.shape == x.shape);
  const RowsView to(out);
  const RowsView from(x);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) to.row(r)[c] = from.row(r)[c] * factor;
  }
}

void ReferenceEncoder::soft_cap(Tensor x, float cap) {
  const RowsView rows(x);
  for (int64_t r = 0; r < rows.rows; ++r) {
    for (int64_t c = 0; c < rows.cols; ++c) {
      float& value = rows.row(r)[c];
      value = static_cast<float>(cap * std::tanh(static_cast<double>(value) / cap));
    }
  }
}

void ReferenceEncoder::top_rows(Tensor values, Tensor ids, Tensor x) {
  host_top_rows(values, ids, x);
}

void ReferenceEncoder::glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) {
  MF_CHECK(out.shape == gate.shape && out.shape == up.shape);
  const RowsView to(out);
  const RowsView gates(gate);
  const RowsView ups(up);
  for (int64_t r = 0; r < to.rows; ++r) {
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>(gated(gates.row(r)[c], ups.row(r)[c], options));
    }
  }
}

void ReferenceEncoder::embed(Tensor out, const Weight& table, Tensor token_ids) {
  const RowsView to(out);
  MF_CHECK(to.rows == token_ids.num_elements() && to.cols == table.cols);
  const int32_t* ids = host_ptr<int32_t>(token_ids);
  for (int64_t r = 0; r < to.rows; ++r) {
    MF_CHECK(ids[r] >= 0 && ids[r] < table.rows);
    const std::span<const float> row = decoded_row(table, ids[r]);
    std::copy(row.begin(), row.end(), to.row(r));
  }
}

void ReferenceEncoder::linear(Tensor out, Tensor x, const Weight& weight) {
  const RowsView to(out);
  const RowsView from(x);
  MF_CHECK(to.rows == from.rows && to.cols == weight.rows && from.cols == weight.cols);
  for (int64_t o = 0; o < weight.rows; ++o) {
    const std::span<const float> row = decoded_row(weight, o);
    for (int64_t t = 0; t < to.rows; ++t) to.row(t)[o] = static_cast<float>(dot(row, from.row(t)));
  }
}

void ReferenceEncoder::head_linear(Tensor out, Tensor x, const Weight& weight,
                                   const HeadRows& rows) {
  const RowsView to(out);
  const RowsView from(x);
  const int64_t heads = x.dim(1);
  MF_CHECK(to.cols == rows.rows_per_head && from.cols == weight.cols && to.rows == from.rows);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < rows.rows_per_head; ++r) {
      const std::span<const float> row =
          decoded_row(weight, h * rows.head_stride + rows.row_begin + r);
      for (int64_t t = 0; t < x.dim(0); ++t) {
        to.row(t * heads + h)[r] = static_cast<float>(dot(row, from.row(t * heads + h)));
      }
    }
  }
}

void ReferenceEncoder::head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                                              const HeadRows& rows) {
  const RowsView to(out);
  const RowsView from(x);
  const int64_t heads = x.dim(1);
  MF_CHECK(from.cols == rows.rows_per_head && to.cols == weight.cols && to.rows == from.rows);
  std::vector<double> sums(static_cast<size_t>(x.dim(0) * to.cols));
  for (int64_t h = 0; h < heads; ++h) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t r = 0; r < rows.rows_per_head; ++r) {
      const std::span<const float> row =
          decoded_row(weight, h * rows.head_stride + rows.row_begin + r);
      for (int64_t t = 0; t < x.dim(0); ++t) {
        const double factor = from.row(t * heads + h)[r];
        for (size_t c = 0; c < row.size(); ++c) {
          sums[static_cast<size_t>(t) * row.size() + c] += factor * row[c];
        }
      }
    }
    for (int64_t t = 0; t < x.dim(0); ++t) {
      for (int64_t c = 0; c < to.cols; ++c) {
        to.row(t * heads + h)[c] = static_cast<float>(sums[static_cast<size_t>(t * to.cols + c)]);
      }
    }
  }
}

void ReferenceEncoder::rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                            const RopeOptions& options) {
  const RowsView heads(x);
  const int64_t half = options.rotary_dim / 2;
  MF_CHECK(x.shape.rank() == 3 && options.rotary_dim <= heads.cols &&
           inverse_frequencies.num_elements() == half && positions.num_elements() == x.dim(0));
  const int32_t* position = host_ptr<int32_t>(positions);
  const float* frequencies = host_ptr<float>(inverse_frequencies);
  for (int64_t r = 0; r < heads.rows; ++r) {
    float* head = heads.row(r);
    for (int64_t i = 0; i < half; ++i) {
      // The angle is rounded to f32, as the reference implementations compute it: at position 10^5
      // that is visible.
      const float angle = static_cast<float>(position[r / x.dim(1)]) * frequencies[i];
      const double cosine = std::cos(static_cast<double>(angle)) * options.attention_factor;
      const double sine = std::sin(static_cast<double>(angle)) * options.attention_factor;
      float& a = head[options.interleaved ? 2 * i : i];
      float& b = head[options.interleaved ? 2 * i + 1 : i + half];
      const double a0 = a;
      const double b0 = b;
      a = static_cast<float>(a0 * cosine - b0 * sine);
      b = static_cast<float>(b0 * cosine + a0 * sine);
    }
  }
}

namespace {

// The cached row of a token, wherever its page is.
float* cached(const KvView& kv, std::span<const Tensor> pages, int64_t position, int64_t head) {
  const auto page = static_cast<size_t>(position / kv.page_tokens) % pages.size();
  const Tensor& tensor = pages[page];
  return host_ptr<float>(tensor) + (position % kv.page_tokens) * tensor.strides[0] +
         head * tensor.strides[1];
}

void append_to_cache(const KvView& kv, std::span<const Tensor> pages, const Tensor& x) {
  const RowsView rows(x);
  const int64_t heads = x.dim(1);
  for (int64_t r = 0; r < rows.rows; ++r) {
    std::copy_n(rows.row(r), rows.cols, cached(kv, pages, kv.length + r / heads, r % heads));
  }
}

}  // namespace

void ReferenceEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                                 std::span<const KvRows> sequences,
                                 const AttentionOptions& options) {
  int64_t row = 0;
  for (const KvRows& s : sequences) {
    attend(out.slice(0, row, s.rows), q.slice(0, row, s.rows), k.slice(0, row, s.rows),
           v.is_null() ? v : v.slice(0, row, s.rows), s.kv, options);
    row += s.rows;
  }
  MF_CHECK(row == q.dim(0));
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
        score = dot(query, cached(kv, kv.k_pages, s, kv_head)) * options.scale;
        largest = std::max(largest, score);
      }
      double total = has_sink ? std::exp(sink - largest) : 0.0;
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t s = begin; s < end; ++s) {
        const double p = std::exp(scores[static_cast<size_t>(s - begin)] - largest);
        const float* value = cached(kv, kv.v_pages, s, kv_head);
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
      to.row(t)[c] = static_cast<float>(activate(sum, activation));
    }
    std::copy(past + channels, past + (taps - 1) * channels, past);
    std::copy_n(from.row(t), channels, past + (taps - 2) * channels);
  }
}

}  // namespace

void ReferenceEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, Activation activation,
                                   std::span<const StateRows> sequences) {
  int64_t row = 0;
  for (const StateRows& s : sequences) {
    convolve(out.slice(0, row, s.rows), x.slice(0, row, s.rows), weight, activation, s.state);
    row += s.rows;
  }
  MF_CHECK(row == x.dim(0));
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
      const int64_t key_head = head / (o.value_heads / o.key_heads);
      const float* row = rows.row(t);
      const std::vector<double> q = l2_normalized(row + key_head * o.key_dim, o.key_dim,
                                                  1.0 / std::sqrt(static_cast<double>(o.key_dim)));
      const std::vector<double> k =
          l2_normalized(row + (o.key_heads + key_head) * o.key_dim, o.key_dim, 1.0);
      const float* v = row + 2 * o.key_heads * o.key_dim + head * o.value_dim;
      const double beta = activate(b_rows.row(t)[head], Activation::kSigmoid);
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
  int64_t row = 0;
  for (const StateRows& s : sequences) {
    const auto part = [&](const Tensor& x) { return x.slice(0, row, s.rows); };
    update_delta({part(out), part(qkv), part(a), part(b), a_log, dt_bias, s.state}, o);
    row += s.rows;
  }
  MF_CHECK(row == qkv.dim(0));
}

void ReferenceEncoder::expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                                  std::span<const ExpertWeights> ready, const GluOptions& options) {
  const RowsView from(x);
  const RowsView hidden(intermediate);
  const RowsView to(slots);
  const int64_t top_k = routes.ids.dim(1);
  const int32_t* ids = host_ptr<int32_t>(routes.ids);
  for (const ExpertWeights& expert : ready) {
    for (int64_t slot = 0; slot < from.rows * top_k; ++slot) {
      if (ids[slot] != index(expert.expert)) continue;
      const float* input = from.row(slot / top_k);
      float* h = hidden.row(slot);
      for (int64_t m = 0; m < expert.gate.rows; ++m) {
        const double gate = dot(decoded_row(expert.gate, m), input) + bias_at(expert.gate_bias, m);
        const double up = dot(decoded_row(expert.up, m), input) + bias_at(expert.up_bias, m);
        h[m] = static_cast<float>(gated(gate, up, options));
      }
      for (int64_t o = 0; o < expert.down.rows; ++o) {
        to.row(slot)[o] =
            static_cast<float>(dot(decoded_row(expert.down, o), h) + bias_at(expert.down_bias, o));
      }
    }
  }
}

void ReferenceEncoder::combine_experts(Tensor out, Tensor slots, const Routes& routes) {
  const RowsView to(out);
  const RowsView from(slots);
  const int64_t top_k = routes.ids.dim(1);
  const float* weights = host_ptr<float>(routes.weights);
  for (int64_t t = 0; t < to.rows; ++t) {
    for (int64_t c = 0; c < to.cols; ++c) {
      double sum = 0.0;
      for (int64_t r = 0; r < top_k; ++r) {
        sum += static_cast<double>(weights[t * top_k + r]) * from.row(t * top_k + r)[c];
      }
      to.row(t)[c] = static_cast<float>(sum);
    }
  }
}

}  // namespace moeflux
