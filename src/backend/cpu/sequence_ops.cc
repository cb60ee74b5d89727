// Ops along the sequence: rotary embedding, attention, and the recurrences of gated DeltaNet.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"

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

namespace {

/// Where each page begins; all have the strides of the first.
const float** page_pointers(std::span<const Tensor> pages, std::vector<const float*>& storage) {
  const float** pointers = workspace(storage, static_cast<int64_t>(pages.size()));
  for (size_t p = 0; p < pages.size(); ++p) {
    MF_CHECK(pages[p].strides == pages[0].strides);
    pointers[p] = host_ptr<float>(pages[p]);
  }
  return pointers;
}

void append_to_cache(const Tensor& x, std::span<const Tensor> pages, const KvView& kv) {
  const RowsView rows(x);
  const int64_t heads = x.dim(1);
  for (int64_t t = 0; t < x.dim(0); ++t) {
    const int64_t position = kv.length + t;
    const Tensor& page = pages[static_cast<size_t>(position / kv.page_tokens) % pages.size()];
    float* to = host_ptr<float>(page) + position % kv.page_tokens * page.strides[0];
    for (int64_t h = 0; h < heads; ++h) {
      copy_floats(to + h * page.strides[1], rows.row(t * heads + h), rows.cols);
    }
  }
}

/// True when no token of the step overwrites what another one sees.
bool pages_cover(const KvView& kv, int64_t n, int64_t window) {
  const int64_t room = static_cast<int64_t>(kv.k_pages.size()) * kv.page_tokens;
  return kv.k_pages.size() == kv.v_pages.size() &&
         (kv.length + n <= room || (window > 0 && window - 1 + n <= room));
}

}  // namespace

void CpuEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v, const KvView& kv,
                           const AttentionOptions& options) {
  const RowsView queries(q);
  const RowsView outs(out);
  const int64_t n = q.dim(0);
  const int64_t heads = q.dim(1);
  const int64_t kv_heads = k.dim(1);
  MF_CHECK(kv_heads > 0 && heads % kv_heads == 0 && k.dim(0) == n && out.dim(0) == n &&
           out.dim(1) == heads && k.dim(2) == q.dim(2));
  MF_CHECK(v.is_null() || (v.dim(0) == n && v.dim(1) == kv_heads && v.dim(2) == out.dim(2)));
  if (!status_.ok() || n == 0) return;
  MF_CHECK(pages_cover(kv, n, options.window));
  append_to_cache(k, kv.k_pages, kv);
  if (!v.is_null()) append_to_cache(v, kv.v_pages, kv);
  const float** k_pages = page_pointers(kv.k_pages, k_pages_);
  const float** v_pages = page_pointers(kv.v_pages, v_pages_);
  const float* sinks = floats_or_null(options.sinks);
  // Heads of one task share a kv head and read it together: as many as leave each thread a few
  // tasks.
  constexpr int64_t kTasksPerThread = 4;
  const int64_t group = heads / kv_heads;
  const int64_t fair = n * heads / (kTasksPerThread * pool_.threads()) / 4 * 4;
  const int64_t heads_per_task = std::clamp<int64_t>(fair, 4, kAttentionHeadsMax);
  const int64_t parts = (group + heads_per_task - 1) / heads_per_task;
  const int64_t total = kv.length + n;
  const int64_t seen = options.window > 0 ? std::min(options.window, total) : total;
  for_tasks(n * kv_heads * parts, n * heads * seen * (q.dim(2) + out.dim(2)), [&](int64_t task) {
    const int64_t t = task / (kv_heads * parts);
    const int64_t kv_head = task / parts % kv_heads;
    const int64_t first = kv_head * group + task % parts * heads_per_task;
    const int64_t last = std::min(first + heads_per_task, (kv_head + 1) * group);
    const int64_t end = kv.length + t + 1;
    kernels_.attention(
        {.q = queries.row(t * heads + first),
         .q_stride = q.strides[1],
         .out = outs.row(t * heads + first),
         .out_stride = out.strides[1],
         .heads = last - first,
         .sinks = sinks == nullptr ? nullptr : sinks + first,
         .k_pages = k_pages,
         .v_pages = v_pages,
         .pages = static_cast<int64_t>(kv.k_pages.size()),
         .page_tokens = kv.page_tokens,
         .k_stride = kv.k_pages[0].strides[0],
         .v_stride = kv.v_pages[0].strides[0],
         .kv_head_k_offset = kv_head * kv.k_pages[0].strides[1],
         .kv_head_v_offset = kv_head * kv.v_pages[0].strides[1],
         .begin = options.window > 0 ? std::max<int64_t>(0, end - options.window) : 0,
         .end = end,
         .head_dim = q.dim(2),
         .v_head_dim = out.dim(2),
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
