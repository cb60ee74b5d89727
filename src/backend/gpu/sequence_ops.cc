// Attention and causal convolution as plans.
#include <algorithm>
#include <array>
#include <cstring>

#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr uint32_t kThreads = 128;
// Below this many groups, splits of a query get groups of their own: large GPUs run a few hundred
// at a time.
constexpr uint32_t kGroupsWanted = 512;

bool have_equal_layouts(std::span<const Tensor> pages) {
  return std::all_of(pages.begin(), pages.end(), [&](const Tensor& page) {
    return page.strides == pages.front().strides && page.dtype == DType::kF32;
  });
}

AttentionParams attention_params(const Tensor& out, const Tensor& q, int64_t kv_heads,
                                 const KvView& kv, const AttentionOptions& options) {
  AttentionParams p{};
  p.q = heads_layout(q);
  p.out = heads_layout(out);
  p.k_page = heads_layout(kv.k_pages.front());
  p.v_page = heads_layout(kv.v_pages.front());
  p.tokens = static_cast<u32>(q.dim(0));
  p.heads = static_cast<u32>(q.dim(1));
  p.heads_per_kv_head = static_cast<u32>(q.dim(1) / kv_heads);
  p.head_dim = static_cast<u32>(q.dim(2));
  p.v_head_dim = static_cast<u32>(out.dim(2));
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  p.begin = static_cast<u32>(kv.length);
  p.window = static_cast<u32>(options.window);
  p.has_sinks = options.sinks.is_null() ? 0 : 1;
  p.scale = options.scale;
  return p;
}

/// Sets the splits of `size` positions that any query sees.
void count_splits(AttentionParams& p, u32 size) {
  const u32 first = p.window > 0 && p.begin + 1 > p.window ? p.begin + 1 - p.window : 0;
  p.first_split = first / size;
  p.num_splits = (p.begin + p.tokens - 1) / size - p.first_split + 1;
}

uint64_t partial_bytes(const AttentionParams& p) {
  return uint64_t{p.tokens} * p.heads * p.num_splits * (p.v_head_dim + 2) * sizeof(float);
}

/// A kernel of attention_tiles.h and the rows of its groups.
struct TileKernel {
  KernelId id;
  uint32_t rows;
  uint32_t threads;
};
constexpr TileKernel kRows128{KernelId::attention_rows128, 128, 512};
constexpr TileKernel kRows64{KernelId::attention_rows64, 64, 512};
constexpr TileKernel kRows16{KernelId::attention_rows16, 16, 512};
constexpr TileKernel kRows16Wide{KernelId::attention_rows16_wide, 16, 512};
constexpr TileKernel kRows32Wide{KernelId::attention_rows32_wide, 32, 512};

uint32_t tile_bytes(const AttentionParams& p, uint32_t rows) {
  const uint32_t row_words = p.key_words + kTileKeys + 16 + 3;  // a query, its scores, its factors
  const uint32_t words = rows * row_words + kTileKeys * (std::max(p.key_words, p.value_words) + 2);
  return words * static_cast<uint32_t>(sizeof(u32));
}

bool are_wide(const Tensor& q, const KvView& kv) {
  const auto wide = [](const Tensor& page) { return is_wide(page) && page.dim(2) % 4 == 0; };
  return wide(q) && std::all_of(kv.k_pages.begin(), kv.k_pages.end(), wide) &&
         std::all_of(kv.v_pages.begin(), kv.v_pages.end(), wide);
}

bool share_rows(const KvView& kv) {
  return std::equal(kv.k_pages.begin(), kv.k_pages.end(), kv.v_pages.begin(), kv.v_pages.end(),
                    [](const Tensor& k, const Tensor& v) {
                      return k.buffer == v.buffer && k.offset_bytes == v.offset_bytes &&
                             k.strides == v.strides;
                    });
}

/// Rows begin on banks 16 apart for keys, read in units of 4, and 8 apart for values.
void lay_out_tiles(AttentionParams& p) {
  p.key_words = (p.head_dim + 15) / 32 * 32 + 16;
  p.value_words = (p.v_head_dim + 23) / 32 * 32 + 8;
}

/// Whether attention runs on matrix units: a matter of shapes and of where a model's tensors lie,
/// not of their number, as bits depend on it. Variants for other rows would be read as instructions
/// by all, which few tokens wait for.
bool fits_tiles(const AttentionParams& p, const Tensor& q, const KvView& kv,
                const Platform& platform) {
  return platform.has_matrix_units() && are_wide(q, kv) && p.page_tokens % kTileKeys == 0 &&
         p.head_dim <= 576 && p.v_head_dim <= 512 &&
         tile_bytes(p, kRows16.rows) <= platform.shared_bytes_max();
}

/// The most rows a group that leave no core idle; fewer, and groups for splits, if rows are few.
TileKernel choose_tiles(AttentionParams& p, const Platform& platform) {
  constexpr uint64_t kPartialBytesMax = 64 * kMiB;
  const uint64_t rows = uint64_t{p.tokens} * p.heads_per_kv_head;
  const uint32_t kv_heads = p.heads / p.heads_per_kv_head;
  const bool is_narrow = p.head_dim <= 256 && p.v_head_dim <= 256;
  const std::array<TileKernel, 3> kernels = is_narrow
                                                ? std::array{kRows128, kRows64, kRows16}
                                                : std::array{kRows32Wide, kRows16Wide, kRows16Wide};
  const auto fits = [&](const TileKernel& kernel) {
    return tile_bytes(p, kernel.rows) <= platform.shared_bytes_max();
  };
  const auto groups = [&](const TileKernel& kernel) {
    return groups_for(rows, kernel.rows) * uint64_t{kv_heads};
  };
  const uint64_t wanted = std::max<uint64_t>(platform.cores() * 3 / 4, 1);
  const TileKernel& least = kernels.back();
  const TileKernel& shared = is_narrow ? kRows64 : kRows32Wide;  // by the groups of splits
  count_splits(p, kTileSplit);
  for (const TileKernel& kernel : kernels) {
    if ((kernel.rows > least.rows && !fits(kernel)) || groups(kernel) < wanted) continue;
    p.num_splits = 1;
    return kernel;
  }
  if (partial_bytes(p) > kPartialBytesMax) p.num_splits = 1;
  if (rows > shared.rows / 2 && fits(shared) && groups(shared) * p.num_splits >= wanted) {
    return shared;
  }
  return least;
}

}  // namespace

bool GpuEncoder::place_pages(std::span<const Tensor> pages, Binding& table) {
  table_bytes_.resize(pages.size() * sizeof(u64));
  for (size_t i = 0; i < pages.size(); ++i) {
    const u64 address = address_of(pages[i]);
    std::memcpy(table_bytes_.data() + i * sizeof(u64), &address, sizeof(u64));
  }
  const Result<Binding> placed = place_table();
  if (!placed.ok()) return fail(placed.error());
  table = *placed;
  return true;
}

bool GpuEncoder::record_attention(const AttentionHeads& heads, AttentionParams& p,
                                  Binding& partials) {
  p = attention_params(heads.out, heads.q, heads.kv_heads, heads.kv, heads.options);
  Plan plan;
  lay_out_tiles(p);
  if (fits_tiles(p, heads.q, heads.kv, platform_)) {
    p.shares_rows = share_rows(heads.kv) ? 1 : 0;
    const TileKernel kernel = choose_tiles(p, platform_);
    const uint32_t rows = groups_for(uint64_t{p.tokens} * p.heads_per_kv_head, kernel.rows);
    plan =
        make_plan(kernel.id, {rows, p.heads / p.heads_per_kv_head, p.num_splits}, kernel.threads);
    plan.shared_bytes = tile_bytes(p, kernel.rows);
  } else {
    count_splits(p, kAttentionSplit);
    if (p.tokens * p.heads >= kGroupsWanted) p.num_splits = 1;
    plan = make_plan(KernelId::attention_heads, {p.heads, p.tokens, p.num_splits}, kThreads,
                     (p.head_dim + 2 * kAttentionTile) * static_cast<uint32_t>(sizeof(float)));
  }
  if (p.num_splits > 1) {
    const Result<Binding> taken = workspace_.take(partial_bytes(p));
    if (!taken.ok()) return fail(taken.error());
    partials = *taken;
    partials.access = Access::kOverwrite;
  }
  plan.set_params(p);
  plan.bind(range_of(heads.q, Access::kRead));
  plan.bind(heads.k_table);
  plan.bind(heads.v_table);
  plan.bind(range_of(heads.options.sinks, Access::kRead));
  if (p.num_splits > 1) {
    plan.bind({});
  } else {
    bind_output(plan, heads.out);
  }
  plan.bind(partials);
  record(plan);
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
  AttentionParams p{};
  Binding partials;
  const AttentionHeads heads{out, q, k.dim(1), kv, options, k_table, v_table};
  if (!record_attention(heads, p, partials) || p.num_splits == 1) return;
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
  const bool is_held = p.taps <= kConvTapsHeld;
  p.wide = is_held && p.channels % 4 == 0 && is_wide(x) && is_wide(out) && is_wide(state) ? 1 : 0;
  Plan plan = make_plan(KernelId::causal_conv_rows,
                        {groups_for(p.wide != 0 ? p.channels / 4 : p.channels, kThreads),
                         groups_for(p.tokens, kConvTokens), 1},
                        kThreads);
  plan.set_params(p);
  plan.bind(range_of(x, Access::kRead));
  plan.bind(range_of(weight, Access::kRead));
  plan.bind(range_of(state, is_held ? Access::kReadWrite : Access::kRead));
  bind_output(plan, out);
  record(plan);
  if (is_held) return;
  Plan shift = make_plan(KernelId::causal_conv_shift, {columns, 1, 1}, kThreads);
  shift.set_params(p);
  shift.bind(range_of(x, Access::kRead));
  shift.bind(range_of(state, Access::kReadWrite));
  record(shift);
}

}  // namespace moeflux::gpu
