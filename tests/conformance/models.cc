#include "tests/conformance/models.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/format.h"
#include "quant/q8_rows.h"
#include "tests/support/one_sequence.h"

namespace moeflux::conformance {
namespace {

void append(std::vector<float>& to, const std::vector<float>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

int64_t total(const Chunks& chunks) {
  return std::accumulate(chunks.begin(), chunks.end(), int64_t{0});
}

Chunks one_by_one(int64_t n) { return Chunks(static_cast<size_t>(n), 1); }

AttentionProblem AttentionProblem::make(Random& random, int64_t heads, int64_t kv_heads,
                                        int64_t head_dim, int64_t v_head_dim, int64_t page_tokens,
                                        int64_t n) {
  return {heads,
          kv_heads,
          head_dim,
          v_head_dim,
          page_tokens,
          n,
          random.floats(n * heads * head_dim, -2.0f, 2.0f),
          random.floats(n * kv_heads * head_dim, -2.0f, 2.0f),
          random.floats(n * kv_heads * v_head_dim, -2.0f, 2.0f)};
}

void AttentionProblem::add_biases(Random& random, int64_t extent) {
  bias_extent = extent;
  biases = random.floats(n * heads * extent, -3.0f, 3.0f);
  sinks = random.floats(n * heads, -5.0f, 5.0f);
}

Tensor AttentionProblem::page(Session& s, int64_t dim, DType type) const {
  return s.zeros({page_tokens, kv_heads, type == DType::kI8 ? q8_rows::row_bytes(dim) : dim}, type);
}

std::vector<float> AttentionProblem::run(Session& s, const Chunks& chunks) const {
  std::vector<Tensor> k_pages;
  std::vector<Tensor> v_pages;
  const int64_t ring = window - 1 + *std::max_element(chunks.begin(), chunks.end());
  const int64_t room = window > 0 ? std::min(n, ring) : n;
  for (int64_t t = 0; t < room; t += page_tokens) {
    k_pages.push_back(page(s, head_dim, k_type));
    if (!values_are_keys) {
      v_pages.push_back(page(s, v_head_dim, v_type));
    } else {
      const bool are_whole = k_type == DType::kI8;
      v_pages.push_back(are_whole ? k_pages.back() : k_pages.back().slice(2, 0, v_head_dim));
    }
  }
  const Tensor all_q = s.floats({n, heads, head_dim}, q);
  const Tensor all_k = s.floats({n, kv_heads, head_dim}, k);
  const Tensor all_v = s.floats({n, kv_heads, v_head_dim}, v);
  const Tensor out = s.zeros({n, heads, v_head_dim});
  const Shape sink_shape = has_own_sinks() ? Shape{n, heads} : Shape{heads};
  const Tensor extra = sinks.empty() ? Tensor{} : s.floats(sink_shape, sinks);
  const Tensor bias = bias_extent > 0 ? s.floats({n, heads, bias_extent}, biases) : Tensor{};
  int64_t at = 0;
  for (const int64_t count : chunks) {
    s.encoder().run(
        ops::Attention{out.slice(0, at, count),
                       all_q.slice(0, at, count),
                       all_k.slice(0, at, count),
                       values_are_keys ? Tensor{} : all_v.slice(0, at, count),
                       testing::one_sequence(all_q.slice(0, at, count).dim(0),
                                             {k_pages, v_pages, page_tokens, at}),
                       {.scale = 0.2f,
                        .window = window,
                        .chunked = chunked,
                        .sinks = has_own_sinks() ? extra.slice(0, at, count) : extra,
                        .distance_bias = bias.is_null() ? bias : bias.slice(0, at, count)}});
    at += count;
  }
  return s.read(out);
}

HeadProblem HeadProblem::make(Random& random, const QuantFormat& format, const HeadRows& rows,
                              int64_t heads, int64_t cols, int64_t n, bool transposed) {
  HeadProblem p;
  p.weight = random_weight(random, format, heads * rows.head_stride, cols);
  p.rows = rows;
  p.heads = heads;
  p.n = n;
  p.transposed = transposed;
  p.x = random.floats(n * heads * (p.in_width() + kGap), -2.0f, 2.0f);
  return p;
}

std::vector<float> HeadProblem::run(Session& s, const Chunks& chunks) const {
  const Tensor from = s.floats({n, heads, in_width() + kGap}, x);
  const Tensor to = s.zeros({n, heads, out_width() + kGap});
  const Weight w = s.weight(weight);
  int64_t at = 0;
  for (const int64_t count : chunks) {
    const Tensor in = from.slice(0, at, count).slice(2, kGap, in_width());
    const Tensor out = to.slice(0, at, count).slice(2, 1, out_width());
    if (transposed) {
      s.encoder().run(ops::HeadLinearTransposed{out, in, w, rows});
    } else {
      s.encoder().run(ops::HeadLinear{out, in, w, rows});
    }
    at += count;
  }
  return s.read(to);
}

double gated_unit(double gate, double up, const GluOptions& o) {
  if (o.activation == Activation::kGeluTanh) {
    const double inner = std::sqrt(2.0 / M_PI) * (gate + 0.044715 * gate * gate * gate);
    return 0.5 * gate * (1.0 + std::tanh(inner)) * up;
  }
  if (o.activation == Activation::kRelu) return std::max(gate, 0.0) * up;
  const double limit = o.limit;
  if (o.activation == Activation::kSoftCapped) {
    const double linear = o.limit * std::tanh(gate / o.limit);
    return linear / (1.0 + std::exp(-gate)) * o.alpha * std::tanh(up / o.alpha);
  }
  if (o.activation == Activation::kCappedSilu) {
    return std::min(gate / (1.0 + std::exp(-gate)), limit) * std::clamp(up, -limit, limit);
  }
  gate = std::min(gate, limit);
  return (std::clamp(up, -limit, limit) + o.up_offset) * gate / (1.0 + std::exp(-o.alpha * gate));
}

ConvProblem ConvProblem::make(Random& random, int64_t channels, int64_t taps, int64_t n) {
  return {channels,
          taps,
          n,
          random.floats(n * channels, -2.0f, 2.0f),
          random.floats(channels * taps),
          random.floats((taps - 1) * channels, -2.0f, 2.0f)};
}

std::vector<float> ConvProblem::run(Session& s, const Chunks& chunks) const {
  const Tensor all_x = s.floats({n, channels}, x);
  const Tensor out = s.zeros({n, channels});
  const Tensor taps_tensor = s.floats({channels, taps}, weight);
  const Tensor past = s.floats({taps - 1, channels}, state);
  const ConvOptions options{activation, bias.empty() ? Tensor{} : s.floats({channels}, bias)};
  int64_t at = 0;
  for (const int64_t count : chunks) {
    s.encoder().run(ops::CausalConv{out.slice(0, at, count), all_x.slice(0, at, count), taps_tensor,
                                    options,
                                    testing::one_sequence(all_x.slice(0, at, count).dim(0), past)});
    at += count;
  }
  std::vector<float> result = s.read(out);
  append(result, s.read(past));
  return result;
}

TokenConvProblem TokenConvProblem::make(Random& random, int64_t channels, int64_t taps, int64_t n) {
  return {channels,
          taps,
          n,
          random.floats(n * channels, -2.0f, 2.0f),
          random.floats(taps * channels),
          random.floats(n * kGroups * taps),
          random.floats((taps - 1) * channels, -2.0f, 2.0f)};
}

std::vector<float> TokenConvProblem::run(Session& s, const Chunks& chunks) const {
  const Tensor all_x = s.floats({n, channels}, x);
  const Tensor all_shares = s.floats({n, kGroups, taps}, shares);
  const Tensor out = s.zeros({n, channels});
  const Tensor weights = s.floats({taps, channels}, weight);
  const Tensor past = s.floats({taps - 1, channels}, state);
  int64_t at = 0;
  for (const int64_t count : chunks) {
    s.encoder().run(ops::TokenConv{out.slice(0, at, count), all_x.slice(0, at, count), weights,
                                   all_shares.slice(0, at, count),
                                   testing::one_sequence(count, past)});
    at += count;
  }
  std::vector<float> result = s.read(out);
  append(result, s.read(past));
  return result;
}

DeltaProblem DeltaProblem::make(Random& random, const GatedDeltaOptions& o, int64_t n) {
  const int64_t width = 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim;
  return {o,
          n,
          random.floats(n * width),
          random.floats(n * o.decays(), -3.0f, 3.0f),
          random.floats(n * o.value_heads, -3.0f, 3.0f),
          random.floats(o.value_heads, -4.0f, 1.0f),
          random.floats(o.decays(), -2.0f, 1.0f),
          random.floats(o.value_heads * o.key_dim * o.value_dim)};
}

std::vector<float> DeltaProblem::run(Session& s, const Chunks& chunks) const {
  const GatedDeltaOptions& o = options;
  const int64_t width = 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim;
  const Tensor all_qkv = s.floats({n, width}, qkv);
  const Tensor all_a = s.floats({n, o.decays()}, a);
  const Tensor all_b = s.floats({n, o.value_heads}, b);
  const Tensor rates = s.floats({o.value_heads}, a_log);
  const Tensor biases = s.floats({o.decays()}, dt_bias);
  const Tensor cells = s.floats({o.value_heads, o.key_dim, o.value_dim}, state);
  const Tensor out = s.zeros({n, o.value_heads, o.value_dim});
  int64_t at = 0;
  for (const int64_t count : chunks) {
    s.encoder().run(
        ops::GatedDelta{out.slice(0, at, count), all_qkv.slice(0, at, count),
                        all_a.slice(0, at, count), all_b.slice(0, at, count), rates, biases,
                        testing::one_sequence(all_qkv.slice(0, at, count).dim(0), cells), o});
    at += count;
  }
  std::vector<float> result = s.read(out);
  append(result, s.read(cells));
  return result;
}

ScanProblem ScanProblem::make(Random& random, const ScanOptions& o, int64_t n) {
  return {o,
          n,
          random.floats(n * o.row_width()),
          random.floats(n * o.heads, -3.0f, 3.0f),
          random.floats(o.heads, -4.0f, 2.0f),
          random.floats(o.heads, -4.0f, 1.0f),
          random.floats(o.heads),
          random.floats(o.heads * o.state_dim * o.head_dim)};
}

ScanWeights ScanProblem::weights(Session& s) const {
  return {s.floats({options.heads}, a_log), s.floats({options.heads}, dt_bias),
          s.floats({options.heads}, skip)};
}

std::vector<float> ScanProblem::run(Session& s, const Chunks& chunks) const {
  const ScanOptions& o = options;
  const Tensor all_rows = s.floats({n, o.row_width()}, xbc);
  const Tensor all_steps = s.floats({n, o.heads}, dt);
  const ScanWeights own = weights(s);
  const Tensor cells = s.floats({o.heads, o.state_dim, o.head_dim}, state);
  const Tensor out = s.zeros({n, o.heads, o.head_dim});
  int64_t at = 0;
  for (const int64_t count : chunks) {
    s.encoder().run(ops::SelectiveScan{
        out.slice(0, at, count), all_rows.slice(0, at, count), all_steps.slice(0, at, count), own,
        testing::one_sequence(all_rows.slice(0, at, count).dim(0), cells), o});
    at += count;
  }
  std::vector<float> result = s.read(out);
  append(result, s.read(cells));
  return result;
}

MoeProblem MoeProblem::make(Random& random, const QuantFormat& format, const MoeSizes& sizes) {
  MoeProblem p;
  static_cast<MoeSizes&>(p) = sizes;
  for (int64_t e = 0; e < p.experts; ++e) {
    p.gate.push_back(random_weight(random, format, p.intermediate, p.hidden));
    p.up.push_back(random_weight(random, format, p.intermediate, p.hidden));
    p.down.push_back(random_weight(random, format, p.hidden, p.intermediate));
  }
  p.x = random.floats(p.n * p.hidden);
  for (int64_t t = 0; t < p.n; ++t) {
    const int64_t first = random.below(p.experts);
    const int64_t step = 1 + random.below(std::max<int64_t>(p.experts / p.top_k, 1));
    for (int64_t r = 0; r < p.top_k; ++r) {
      p.ids.push_back(static_cast<int32_t>((first + r * step) % p.experts));
    }
  }
  p.weights = random.floats(p.n * p.top_k, 0.0f, 1.0f);
  return p;
}

void MoeProblem::add_biases(Random& random, DType dtype) {
  const QuantFormat format = QuantFormat::plain(dtype);
  for (int64_t e = 0; e < experts; ++e) {
    gate_bias.push_back(random_weight(random, format, 1, intermediate));
    up_bias.push_back(random_weight(random, format, 1, intermediate));
    down_bias.push_back(random_weight(random, format, 1, hidden));
  }
}

std::vector<float> MoeProblem::run(Session& s,
                                   const std::vector<std::vector<int32_t>>& waves) const {
  return run_tokens(s, 0, n, waves);
}

std::vector<float> MoeProblem::run_tokens(Session& s, int64_t begin, int64_t count,
                                          const std::vector<std::vector<int32_t>>& waves) const {
  const auto part = [&](const auto& values, int64_t width) {
    return std::span(values).subspan(static_cast<size_t>(begin * width),
                                     static_cast<size_t>(count * width));
  };
  std::vector<ExpertWeights> all;
  for (size_t e = 0; e < gate.size(); ++e) {
    all.push_back(
        {ExpertId{static_cast<int32_t>(e)}, s.weight(gate[e]), s.weight(up[e]), s.weight(down[e])});
    if (gate_bias.empty()) continue;
    all.back().gate_bias = s.weight(gate_bias[e]).parts.codes.reshape({intermediate});
    all.back().up_bias = s.weight(up_bias[e]).parts.codes.reshape({intermediate});
    all.back().down_bias = s.weight(down_bias[e]).parts.codes.reshape({hidden});
  }
  const Tensor input = s.floats({count, hidden}, part(x, hidden));
  const Routes routes{s.ints({count, top_k}, part(ids, top_k)),
                      s.floats({count, top_k}, part(weights, top_k))};
  const Tensor slots = s.zeros({count, top_k, hidden});
  const Tensor space = s.zeros({count, top_k, intermediate});
  for (const std::vector<int32_t>& wave : waves) {
    std::vector<ExpertWeights> ready;
    for (const int32_t expert : wave) ready.push_back(all[static_cast<size_t>(expert)]);
    s.encoder().run(ops::ExpertFfn{slots, space, input, routes, ready, glu});
  }
  const Tensor out = s.zeros({count, hidden});
  s.encoder().run(ops::CombineExperts{out, slots, routes});
  std::vector<float> result = s.read(slots);
  append(result, s.read(out));
  return result;
}

std::vector<std::vector<int32_t>> MoeProblem::all_at_once() const {
  std::vector<int32_t> wave(static_cast<size_t>(experts));
  std::iota(wave.begin(), wave.end(), 0);
  return {wave};
}

void check_token_invariance(const std::string& what, const MoeProblem& problem) {
  const auto slots = static_cast<size_t>(problem.top_k * problem.hidden);
  for (const NamedDevice* device : one_device_per_family()) {
    Session whole(*device->device);
    const std::vector<float> expected = problem.run(whole, problem.all_at_once());
    for (int64_t t = 0; t < problem.n; ++t) {
      Session s(*device->device);
      const std::vector<float> got = problem.run_tokens(s, t, 1, problem.all_at_once());
      expect_same_bits(formatted("{}[{}, token {}]", what, device->name, t),
                       std::span(expected).subspan(static_cast<size_t>(t) * slots, slots),
                       std::span(got).first(slots));
    }
  }
}

void check_linear(const std::string& op, Random& random, const QuantFormat& format,
                  const LinearProblem& p) {
  const EncodedWeight w = random_weight(random, format, p.rows, p.cols);
  const std::vector<float> x = random.floats(p.n * p.cols, -2.0f, 2.0f);
  std::vector<float> tolerance;
  for (int64_t t = 0; t < p.n; ++t) {
    for (int64_t r = 0; r < p.rows; ++r) {
      tolerance.push_back(dot_tolerance(row_of(w.decoded, r, p.cols), row_of(x, t, p.cols)));
    }
  }
  const std::string label = formatted("{} {}, {}x{}x{}", format.to_string(),
                                      dtype_name(format.dtype), p.n, p.rows, p.cols);
  compare_with_reference({op, label, p.rows, std::move(tolerance)}, [&](Session& s) {
    const Tensor out = s.zeros({p.n, p.rows});
    s.encoder().run(ops::Linear{out, s.floats({p.n, p.cols}, x), s.weight(w)});
    return s.read(out);
  });
}

}  // namespace moeflux::conformance
