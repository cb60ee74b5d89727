#include "backend/reference/reference_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/host_top.h"
#include "backend/reference/scalar.h"
#include "base/format.h"

namespace moeflux {
namespace {

using reference::activate;
using reference::dot;

double gated(double gate, double up, const GluOptions& o) {
  if (o.activation == Activation::kCappedSilu) {
    const double limit = o.limit;
    return std::min(activate(gate, Activation::kSilu), limit) * std::clamp(up, -limit, limit);
  }
  if (o.activation != Activation::kSilu) return activate(gate, o.activation) * up;
  const double limit = o.limit;
  gate = std::min(gate, limit);
  up = std::clamp(up, -limit, limit) + o.up_offset;
  return up * gate / (1.0 + std::exp(-o.alpha * gate));
}

double bias_at(const Tensor& bias, int64_t i) {
  return bias.is_null() ? 0.0 : load_float(host_ptr<std::byte>(bias), i, bias.dtype);
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
  MF_CHECK(weight.is_null() || (weight.shape.back() == x.shape.back() && weight.is_contiguous()));
  const RowsView to(out);
  const RowsView from(x);
  for (int64_t r = 0; r < to.rows; ++r) {
    const float* row = from.row(r);
    const float* w = weight.is_null() ? nullptr : RowsView(weight).row(r % RowsView(weight).rows);
    double squares = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) squares += static_cast<double>(row[c]) * row[c];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(to.cols) + eps);
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>(row[c] * scale * (w == nullptr ? 1.0f : w[c]));
    }
  }
}

void ReferenceEncoder::layer_norm(Tensor out, Tensor x, Tensor weight, float eps) {
  MF_CHECK(out.shape == x.shape && weight.num_elements() == x.shape.back());
  const RowsView to(out);
  const RowsView from(x);
  const float* w = host_ptr<float>(weight);
  const auto cols = static_cast<double>(to.cols);
  for (int64_t r = 0; r < to.rows; ++r) {
    const float* row = from.row(r);
    double mean = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) mean += row[c] / cols;
    double squares = 0.0;
    for (int64_t c = 0; c < to.cols; ++c) squares += (row[c] - mean) * (row[c] - mean);
    const double scale = 1.0 / std::sqrt(squares / cols + eps);
    for (int64_t c = 0; c < to.cols; ++c) {
      to.row(r)[c] = static_cast<float>((row[c] - mean) * scale * w[c]);
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
      const int64_t at = position[r / x.dim(1)] / options.unit * options.unit;
      const float angle = static_cast<float>(at) * frequencies[i];
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
  const int64_t top_k = routes.weights.dim(1);
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
