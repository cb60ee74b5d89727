// Attention, causal convolution and the gated delta rule as plans.
#include <algorithm>
#include <cstring>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kDeltaThreads = 256;
constexpr int64_t kDeltaKeyDimMax = 256;
// Below this many groups, splits of a query get groups of their own: large GPUs run a few hundred
// at a time.
constexpr uint32_t kGroupsWanted = 512;

bool have_equal_layouts(std::span<const Tensor> pages) {
  return std::all_of(pages.begin(), pages.end(), [&](const Tensor& page) {
    return page.strides == pages.front().strides && page.dtype == DType::kF32;
  });
}

AttentionParams attention_params(const Tensor& out, const Tensor& q, const Tensor& k,
                                 const KvView& kv, const AttentionOptions& options) {
  AttentionParams p{};
  p.q = heads_layout(q);
  p.out = heads_layout(out);
  p.k_page = heads_layout(kv.k_pages.front());
  p.v_page = heads_layout(kv.v_pages.front());
  p.tokens = static_cast<u32>(q.dim(0));
  p.heads = static_cast<u32>(q.dim(1));
  p.heads_per_kv_head = static_cast<u32>(q.dim(1) / k.dim(1));
  p.head_dim = static_cast<u32>(q.dim(2));
  p.v_head_dim = static_cast<u32>(out.dim(2));
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.window = static_cast<u32>(options.window);
  p.has_sinks = options.sinks.is_null() ? 0 : 1;
  p.scale = options.scale;
  const u32 first = p.window > 0 && p.begin + 1 > p.window ? p.begin + 1 - p.window : 0;
  p.first_split = first / kAttentionSplit;
  p.num_splits = (p.begin + p.tokens - 1) / kAttentionSplit - p.first_split + 1;
  if (p.tokens * p.heads >= kGroupsWanted) p.num_splits = 1;
  return p;
}

}  // namespace

bool GpuEncoder::place_pages(std::span<const Tensor> pages, Binding& table) {
  table_bytes_.resize(pages.size() * sizeof(u64));
  for (size_t i = 0; i < pages.size(); ++i) {
    const u64 address = address_of(pages[i]);
    std::memcpy(table_bytes_.data() + i * sizeof(u64), &address, sizeof(u64));
  }
  const Result<Binding> placed = tables_.place(table_bytes_);
  if (!placed.ok()) return fail(placed.error());
  table = *placed;
  return true;
}

void GpuEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v, const KvView& kv,
                           const AttentionOptions& options) {
  if (!status_.ok() || q.dim(0) == 0) return;
  MF_CHECK(q.dim(1) % k.dim(1) == 0 && k.dim(0) == q.dim(0) && q.dim(2) == k.dim(2));
  MF_CHECK(have_equal_layouts(kv.k_pages) && have_equal_layouts(kv.v_pages));
  if (out.dim(2) > int64_t{kThreads} * kAttentionColumnsMax) {
    fail(make_error(ErrorCode::kUnsupported, "attention: values of {} per head, at most {}",
                    out.dim(2), kThreads * kAttentionColumnsMax));
    return;
  }
  Binding k_table;
  Binding v_table;
  if (!place_pages(kv.k_pages, k_table) || !place_pages(kv.v_pages, v_table)) return;
  place_heads(q, k, v, kv, k_table, v_table);
  const AttentionParams p = attention_params(out, q, k, kv, options);
  Binding partials;
  if (p.num_splits > 1) {
    const uint64_t floats = uint64_t{p.tokens} * p.heads * p.num_splits * (p.v_head_dim + 2);
    const Result<Binding> taken = workspace_.take(floats * sizeof(float));
    if (!taken.ok()) {
      fail(taken.error());
      return;
    }
    partials = *taken;
    partials.access = Access::kOverwrite;
  }
  Plan plan = make_plan(KernelId::attention_heads, {p.heads, p.tokens, p.num_splits}, kThreads,
                        (p.head_dim + 2 * kAttentionTile) * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(q, Access::kRead));
  plan.bind(k_table);
  plan.bind(v_table);
  plan.bind(range_of(options.sinks, Access::kRead));
  if (p.num_splits > 1) {
    plan.bind({});
  } else {
    bind_output(plan, out);
  }
  plan.bind(partials);
  record(plan);
  if (p.num_splits == 1) return;
  Plan merge = make_plan(KernelId::attention_merge, {p.heads, p.tokens, 1}, kThreads);
  merge.set_params(p);
  partials.access = Access::kRead;
  merge.bind(partials);
  merge.bind(range_of(options.sinks, Access::kRead));
  bind_output(merge, out);
  record(merge);
}

void GpuEncoder::causal_conv(Tensor out, Tensor x, Tensor weight, Tensor state) {
  const int64_t channels = out.shape.back();
  const int64_t taps = weight.dim(1);
  MF_CHECK(x.shape == out.shape && weight.dim(0) == channels && state.dim(0) == taps - 1 &&
           state.dim(1) == channels && state.is_contiguous() && weight.is_contiguous());
  if (join_conv(out, x, weight, state)) return;
  ConvParams p{};
  p.x_stride = row_stride(x);
  p.out_stride = row_stride(out);
  p.tokens = rows_of(x);
  p.channels = static_cast<u32>(channels);
  p.taps = static_cast<u32>(taps);
  const uint32_t columns = groups_for(p.channels, kThreads);
  if (p.tokens == 1 && p.taps <= kConvOneTapsMax) {
    Plan one = make_plan(KernelId::causal_conv_one, {columns, 1, 1}, kThreads);
    one.set_params(p);
    one.bind(range_of(x, Access::kRead));
    one.bind(range_of(weight, Access::kRead));
    one.bind(range_of(state, Access::kReadWrite));
    bind_output(one, out);
    return record(one);
  }
  Plan plan = make_plan(KernelId::causal_conv_rows, {columns, p.tokens, 1}, kThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(range_of(weight, Access::kRead));
  plan.bind(range_of(state, Access::kRead));
  bind_output(plan, out);
  record(plan);
  Plan shift = make_plan(KernelId::causal_conv_shift, {columns, 1, 1}, kThreads);
  shift.set_params(p);
  shift.bind(range_of(x, Access::kRead));
  shift.bind(range_of(state, Access::kReadWrite));
  record(shift);
}

void GpuEncoder::gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log,
                             Tensor dt_bias, Tensor state, const GatedDeltaOptions& o) {
  if (!status_.ok()) return;
  MF_CHECK(qkv.shape.back() == 2 * o.key_heads * o.key_dim + o.value_heads * o.value_dim &&
           o.value_heads % o.key_heads == 0 && state.is_contiguous());
  if (o.key_dim > kDeltaKeyDimMax) {
    fail(make_error(ErrorCode::kUnsupported, "gated_delta: keys of {} per head, at most {}",
                    o.key_dim, kDeltaKeyDimMax));
    return;
  }
  DeltaParams p{};
  p.qkv_stride = row_stride(qkv);
  p.a_stride = row_stride(a);
  p.b_stride = row_stride(b);
  p.out = heads_layout(out);
  p.tokens = rows_of(qkv);
  p.key_heads = static_cast<u32>(o.key_heads);
  p.value_heads = static_cast<u32>(o.value_heads);
  p.key_dim = static_cast<u32>(o.key_dim);
  p.value_dim = static_cast<u32>(o.value_dim);
  const uint32_t sums = 2 * kDeltaThreads;
  Plan plan = make_plan(KernelId::gated_delta_heads,
                        {groups_for(p.value_dim, kSimdLanes), p.value_heads, 1}, kDeltaThreads,
                        (2 * p.key_dim + sums) * static_cast<uint32_t>(sizeof(float)));
  plan.set_params(p);
  plan.bind(range_of(qkv, Access::kRead));
  plan.bind(range_of(a, Access::kRead));
  plan.bind(range_of(b, Access::kRead));
  plan.bind(range_of(a_log, Access::kRead));
  plan.bind(range_of(dt_bias, Access::kRead));
  plan.bind(range_of(state, Access::kReadWrite));
  bind_output(plan, out);
  record(plan);
}

}  // namespace moeflux::gpu
