// Ops along the sequence: rotary embedding, attention, and the recurrences of gated DeltaNet.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_encoder.h"

namespace moeflux::cpu {
namespace {

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

void copy_floats(float* to, const float* from, int64_t count) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

void CpuEncoder::rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
                      const RopeOptions& options) {
  const RowsView rows(x);
  const int64_t half = options.rotary_dim / 2;
  MF_CHECK(x.shape.rank() == 3 && options.rotary_dim <= rows.cols &&
           inverse_frequencies.num_elements() == half && positions.num_elements() == x.dim(0));
  const int64_t n = x.dim(0);
  const int64_t heads = x.dim(1);
  if (!status_.ok() || n == 0 || heads == 0 || half == 0) return;
  const int32_t* position = host_ptr<int32_t>(positions);
  const float* frequencies = host_ptr<float>(inverse_frequencies);
  float* space = workspace(floats_, n * 2 * half);
  for_tasks(n, n * (heads * rows.cols + 16 * half), [&](int64_t t) {
    float* cosines = space + t * 2 * half;
    float* sines = cosines + half;
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position[t]) * frequencies[i];
      cosines[i] = std::cos(angle) * options.attention_factor;
      sines[i] = std::sin(angle) * options.attention_factor;
    }
    kernels_.rope({.x = rows.row(t * heads),
                   .head_stride = x.strides[1],
                   .heads = heads,
                   .cosines = cosines,
                   .sines = sines,
                   .rotary_dim = options.rotary_dim,
                   .interleaved = options.interleaved});
  });
}

void CpuEncoder::append_to_cache(const Tensor& k, const Tensor& v, const KvView& kv) {
  const RowsView keys(k);
  const RowsView values(v);
  const int64_t n = k.dim(0);
  const int64_t kv_heads = k.dim(1);
  const int64_t total = kv.length + n;
  const int64_t pages = (total + kv.page_tokens - 1) / kv.page_tokens;
  MF_CHECK(pages <= static_cast<int64_t>(kv.k_pages.size()) &&
           pages <= static_cast<int64_t>(kv.v_pages.size()));
  const float** k_pages = workspace(k_pages_, pages);
  const float** v_pages = workspace(v_pages_, pages);
  for (int64_t p = 0; p < pages; ++p) {
    k_pages[p] = host_ptr<float>(kv.k_pages[static_cast<size_t>(p)]);
    v_pages[p] = host_ptr<float>(kv.v_pages[static_cast<size_t>(p)]);
  }
  for (int64_t t = 0; t < n; ++t) {
    const auto page = static_cast<size_t>((kv.length + t) / kv.page_tokens);
    const int64_t slot = (kv.length + t) % kv.page_tokens;
    float* to_k = host_ptr<float>(kv.k_pages[page]) + slot * kv_heads * keys.cols;
    float* to_v = host_ptr<float>(kv.v_pages[page]) + slot * kv_heads * values.cols;
    for (int64_t h = 0; h < kv_heads; ++h) {
      copy_floats(to_k + h * keys.cols, keys.row(t * kv_heads + h), keys.cols);
      copy_floats(to_v + h * values.cols, values.row(t * kv_heads + h), values.cols);
    }
  }
}

void CpuEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v, const KvView& kv,
                           const AttentionOptions& options) {
  const RowsView queries(q);
  const RowsView outs(out);
  const int64_t n = q.dim(0);
  const int64_t heads = q.dim(1);
  const int64_t kv_heads = k.dim(1);
  MF_CHECK(kv_heads > 0 && heads % kv_heads == 0 && k.dim(0) == n && v.dim(0) == n &&
           v.dim(1) == kv_heads && out.dim(0) == n && out.dim(1) == heads &&
           out.dim(2) == v.dim(2) && k.dim(2) == q.dim(2));
  if (!status_.ok() || n == 0) return;
  append_to_cache(k, v, kv);
  // Heads of one task share a kv head and read it together.
  constexpr int64_t kHeadsPerTask = 4;
  const int64_t group = heads / kv_heads;
  const int64_t parts = (group + kHeadsPerTask - 1) / kHeadsPerTask;
  const int64_t head_dim = q.dim(2);
  const int64_t v_head_dim = v.dim(2);
  const int64_t work = n * heads * (kv.length + n) * (head_dim + v_head_dim);
  for_tasks(n * kv_heads * parts, work, [&](int64_t task) {
    const int64_t t = task / (kv_heads * parts);
    const int64_t kv_head = task / parts % kv_heads;
    const int64_t first = kv_head * group + task % parts * kHeadsPerTask;
    const int64_t last = std::min(first + kHeadsPerTask, (kv_head + 1) * group);
    kernels_.attention({.q = queries.row(t * heads + first),
                        .q_stride = q.strides[1],
                        .out = outs.row(t * heads + first),
                        .out_stride = out.strides[1],
                        .heads = last - first,
                        .k_pages = k_pages_.data(),
                        .v_pages = v_pages_.data(),
                        .page_tokens = kv.page_tokens,
                        .k_stride = kv_heads * head_dim,
                        .v_stride = kv_heads * v_head_dim,
                        .kv_head_k_offset = kv_head * head_dim,
                        .kv_head_v_offset = kv_head * v_head_dim,
                        .length = kv.length + t + 1,
                        .head_dim = head_dim,
                        .v_head_dim = v_head_dim,
                        .scale = options.scale});
  });
}

void CpuEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, Tensor state) {
  const RowsView to(out);
  const RowsView from(x);
  const int64_t channels = to.cols;
  const int64_t taps = weight.dim(1);
  constexpr int64_t kTapsMax = 8;  // of the kernels
  MF_CHECK(from.cols == channels && from.rows == to.rows && weight.dim(0) == channels &&
           weight.is_contiguous() && taps >= 1 && taps <= kTapsMax && state.dim(0) == taps - 1 &&
           state.dim(1) == channels && state.is_contiguous() && out.shape.rank() == 2);
  if (!status_.ok() || to.rows == 0) return;
  constexpr int64_t kChannelsPerTask = 512;
  const int64_t tasks = (channels + kChannelsPerTask - 1) / kChannelsPerTask;
  for_tasks(tasks, to.rows * channels * (taps + 8), [&](int64_t task) {
    kernels_.causal_conv({.x = from.data,
                          .x_stride = x.strides[0],
                          .out = to.data,
                          .out_stride = out.strides[0],
                          .weight = host_ptr<float>(weight),
                          .state = host_ptr<float>(state),
                          .channels = channels,
                          .taps = taps,
                          .n = to.rows,
                          .begin = task * kChannelsPerTask,
                          .end = std::min(channels, (task + 1) * kChannelsPerTask)});
  });
}

void CpuEncoder::gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log,
                             Tensor dt_bias, Tensor state, const GatedDeltaOptions& o) {
  const RowsView rows(qkv);
  const RowsView to(out);
  const RowsView a_rows(a);
  const RowsView b_rows(b);
  const int64_t n = rows.rows;
  MF_CHECK(rows.cols == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && state.is_contiguous() && a_rows.rows == n &&
           b_rows.rows == n && to.rows == n * o.value_heads && qkv.shape.rank() == 2);
  if (!status_.ok() || n == 0) return;
  const float* log_rates = host_ptr<float>(a_log);
  const float* biases = host_ptr<float>(dt_bias);
  const int64_t width = 2 * o.key_dim + 2 * n;
  float* space = workspace(floats_, o.value_heads * width);
  const int64_t work = 4 * n * o.value_heads * o.key_dim * o.value_dim;
  for_tasks(o.value_heads, work, [&](int64_t head) {
    float* decay = space + head * width + 2 * o.key_dim;
    float* beta = decay + n;
    const double rate = std::exp(static_cast<double>(log_rates[head]));
    for (int64_t t = 0; t < n; ++t) {
      const double step = softplus(static_cast<double>(a_rows.row(t)[head]) + biases[head]);
      decay[t] = static_cast<float>(std::exp(-rate * step));
      beta[t] = static_cast<float>(1.0 / (1.0 + std::exp(-double{b_rows.row(t)[head]})));
    }
    const int64_t key_head = head / (o.value_heads / o.key_heads);
    kernels_.gated_delta({.q = rows.data + key_head * o.key_dim,
                          .k = rows.data + (o.key_heads + key_head) * o.key_dim,
                          .v = rows.data + 2 * o.key_heads * o.key_dim + head * o.value_dim,
                          .qkv_stride = qkv.strides[0],
                          .out = to.row(head),
                          .out_stride = out.strides[0],
                          .decay = decay,
                          .beta = beta,
                          .state = host_ptr<float>(state) + head * o.key_dim * o.value_dim,
                          .workspace = space + head * width,
                          .n = n,
                          .key_dim = o.key_dim,
                          .value_dim = o.value_dim});
  });
}

}  // namespace moeflux::cpu
