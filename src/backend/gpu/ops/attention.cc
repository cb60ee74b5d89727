// Attention over all that a token sees, over keys that it has chosen, and over keys of pools.
#include "backend/ops/attention.h"

#include <algorithm>

#include "backend/gathered_pages.h"
#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/attention_plans.h"
#include "backend/gpu/launch/heads_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/supports.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr int64_t kValueColumnsMax = int64_t{128} * kAttentionColumnsMax;  // attention_heads
constexpr uint32_t kGatherThreads = 128;

// The chosen keys and values of a row, into pages of its own. Values may be parts of keys.
Plan plan_gather(const AttentionHeads& heads, int64_t row, const GatheredPages& pages,
                 bool has_values) {
  const KeySelection& selected = heads.options.selected;
  const KvView& kv = heads.kv;
  const Tensor& k = kv.k_pages.front();
  const Tensor& v = kv.v_pages.front();
  const auto bytes = [](const Tensor& page, int64_t elements) {
    return static_cast<uint64_t>(elements * dtype_bits(page.dtype) / 8);
  };
  GatherParams p{};
  p.k_token_bytes = bytes(k, k.strides[0]);
  p.k_head_bytes = bytes(k, k.strides[1]);
  p.v_token_bytes = bytes(v, v.strides[0]);
  p.v_head_bytes = bytes(v, v.strides[1]);
  p.k_row_bytes = static_cast<u32>(bytes(k, k.dim(2)));
  p.v_row_bytes = static_cast<u32>(bytes(v, v.dim(2)));
  p.keys = static_cast<u32>(selected.keys_at(kv.length + row));
  p.most = static_cast<u32>(selected.most());
  p.unit = static_cast<u32>(selected.unit);
  p.kv_heads = static_cast<u32>(k.dim(1));
  p.group_kv_heads = p.kv_heads / static_cast<u32>(selected.groups());
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  const auto is_wide_row = [](const Tensor& page) {
    return is_wide(page) && page.dim(2) % wide_elements(page.dtype) == 0;
  };
  p.wide = std::all_of(kv.k_pages.begin(), kv.k_pages.end(), is_wide_row) &&
                   (!has_values || std::all_of(kv.v_pages.begin(), kv.v_pages.end(), is_wide_row))
               ? 1
               : 0;
  Plan plan =
      make_plan(KernelId::gather_rows,
                {groups_for(p.keys, kGatherThreads / kSimdLanes), p.kv_heads, has_values ? 2U : 1U},
                kGatherThreads);
  plan.set_params(p);
  plan.bind(range_of(selected.ids.slice(0, row, 1), Access::kRead));
  plan.bind(heads.tables.keys);
  plan.bind(heads.tables.values);
  plan.bind(range_of(pages.keys, Access::kWrite));
  plan.bind(has_values ? range_of(pages.values, Access::kWrite) : Binding{});
  return plan;
}

// Keys of pools, with a row a key.
struct PoolPages {
  KvView keys;
  KvTables tables;
};

// The keys that a row attends to, those of pools and of tokens.
int64_t num_keys(const AttentionHeads& heads, int64_t row) {
  const int64_t position = heads.kv.length + row;
  return heads.options.pooled.count_at(position) + position + 1 -
         first_seen(position, heads.options.window, false);
}

// These keys, into a page of its own.
Plan plan_gather_pooled(const AttentionHeads& heads, const PoolPages& pools, int64_t row,
                        const Tensor& keys) {
  const PooledKeys& pooled = heads.options.pooled;
  const KvView& kv = heads.kv;
  const int64_t position = kv.length + row;
  const Tensor& page = kv.k_pages.front();
  const auto bytes = [&](int64_t elements) {
    return static_cast<uint64_t>(elements * dtype_bits(page.dtype) / 8);
  };
  const bool has_ids = pooled.chooses_at(position);
  GatherPooledParams p{};
  p.token_bytes = bytes(page.strides[0]);
  p.row_bytes = static_cast<u32>(bytes(page.dim(2)));
  p.keys = static_cast<u32>(num_keys(heads, row));
  p.pools = static_cast<u32>(pooled.count_at(position));
  p.has_ids = has_ids ? 1 : 0;
  p.page_pools = static_cast<u32>(pools.keys.page_tokens);
  p.begin = static_cast<u32>(first_seen(position, heads.options.window, false));
  p.page_tokens = static_cast<u32>(kv.page_tokens);
  p.num_pages = static_cast<u32>(kv.k_pages.size());
  const auto are_wide = [](std::span<const Tensor> pages) {
    return std::all_of(pages.begin(), pages.end(), [](const Tensor& tensor) {
      return is_wide(tensor) && tensor.dim(2) % wide_elements(tensor.dtype) == 0;
    });
  };
  p.wide = are_wide(kv.k_pages) && are_wide(pools.keys.k_pages) ? 1 : 0;
  Plan plan = make_plan(KernelId::gather_pooled,
                        {groups_for(p.keys, kGatherThreads / kSimdLanes), 1, 1}, kGatherThreads);
  plan.set_params(p);
  plan.bind(has_ids ? range_of(pooled.ids.slice(0, row, 1), Access::kRead) : Binding{});
  plan.bind(pools.tables.keys);
  plan.bind(heads.tables.keys);
  plan.bind(range_of(keys, Access::kWrite));
  return plan;
}

// The keys and values of rows: to be written to their pages, or there already.
enum class Rows { kNew, kWritten };

// Places the tables of pages and writes keys and values to them. False where nothing is left to do.
bool begin_attention(GpuContext& gpu, AttentionHeads& heads, const ops::Attention& op, Rows rows) {
  if (heads.q.dim(0) == 0) return false;
  gpu.flush_tables();
  if (!place_tables(gpu.recorder(), heads.kv, heads.tables)) return false;
  if (rows == Rows::kNew) {
    write_heads(gpu, {heads.q, op.k, op.v, heads.kv, heads.tables});
  } else {
    gpu.flush();  // the last launch of the rows before
  }
  return true;
}

// The last launch waits.
bool launch_attention(GpuContext& gpu, const AttentionHeads& heads) {
  AttentionResult result;
  if (!record_attention(gpu.recorder(), heads, result)) return false;
  gpu.waiting().attention = result.params.walks == 0 ? merge_op(heads, result) : result.last;
  return true;
}

// A row of `all` over what was gathered: to its token that is the whole of a cache.
bool attend_gathered(GpuContext& gpu, const AttentionHeads& all, int64_t row, const KvView& kv,
                     const KvTables& tables) {
  AttentionHeads own{all.out.slice(0, row, 1),
                     all.q.slice(0, row, 1),
                     all.kv_heads,
                     kv,
                     {.scale = all.options.scale, .sinks = all.options.sinks},
                     tables};
  own.are_all_new = true;
  return launch_attention(gpu, own);
}

void attend(GpuContext& gpu, const ops::Attention& op, const KvView& kv, Rows rows) {
  AttentionHeads heads{op.out, op.q, op.k.dim(1), kv, op.options, {}};
  if (begin_attention(gpu, heads, op, rows)) (void)launch_attention(gpu, heads);
}

// All rows choose their keys.
void attend_selected(GpuContext& gpu, const ops::Attention& op, const KvView& kv, Rows rows) {
  Recorder& recorder = gpu.recorder();
  const KeySelection& selected = op.options.selected;
  const bool has_values = !op.v.is_null();
  ScratchScope scope(gpu.encoder());
  const GatheredPages pages = take_gathered_pages(gpu.encoder(), selected, kv, has_values);
  AttentionHeads heads{op.out, op.q, op.k.dim(1), kv, op.options, {}};
  KvTables tables;
  if (!recorder.place_addresses({&pages.keys, 1}, tables.keys) ||
      !recorder.place_addresses({&pages.values, 1}, tables.values) ||
      !begin_attention(gpu, heads, op, rows)) {
    return;
  }
  for (int64_t row = 0; row < op.q.dim(0); ++row) {
    gpu.record(plan_gather(heads, row, pages, has_values));
    const KvView gathered{.k_pages = {&pages.keys, 1},
                          .v_pages = {&pages.values, 1},
                          .page_tokens = pages.tokens,
                          .length = selected.keys_at(kv.length + row) - 1};
    if (!attend_gathered(gpu, heads, row, gathered, tables)) return;
  }
  // A gate of all rows cannot be part of the launch of one.
  if (op.q.dim(0) > 1) gpu.flush();
}

// With keys of pools.
void attend_pooled(GpuContext& gpu, const ops::Attention& op, const KvView& kv, Rows rows) {
  const int64_t n = op.q.dim(0);
  if (n == 0) return;
  Recorder& recorder = gpu.recorder();
  const PooledKeys& pooled = op.options.pooled;
  const KvView& own = pooled.sequences.front().kv;
  AttentionHeads heads{op.out, op.q, 1, kv, op.options, {}};
  // Beside the workspace, which attention itself takes. It grows with the context, so that it is no
  // scratch.
  constexpr uint64_t kTokens = 256;  // whole tiles of every kernel
  const auto tokens =
      static_cast<int64_t>(round_up(static_cast<uint64_t>(num_keys(heads, n - 1)), kTokens));
  Tensor keys;
  if (!recorder.take_gathered({tokens, 1, op.q.dim(2)}, kv.k_pages.front().dtype, keys)) return;
  gpu.flush_tables();
  KvTables gathered_table;
  PoolPages pools;
  if (!recorder.place_addresses({&keys, 1}, gathered_table.keys) ||
      !recorder.place_addresses(own.k_pages, pools.tables.keys)) {
    return;
  }
  gathered_table.values = gathered_table.keys;
  pools.tables.values = pools.tables.keys;
  pools.keys = append_index_keys(gpu, {op.q, pooled.keys, {}, own, pools.tables},
                                 {.unit = pooled.unit, .recent = 1, .whole = true});
  if (!begin_attention(gpu, heads, op, rows)) return;
  for (int64_t row = 0; row < n; ++row) {
    gpu.record(plan_gather_pooled(heads, pools, row, keys));
    const KvView gathered{.k_pages = {&keys, 1},
                          .v_pages = {&keys, 1},
                          .page_tokens = tokens,
                          .length = num_keys(heads, row) - 1};
    if (!attend_gathered(gpu, heads, row, gathered, gathered_table)) return;
  }
  // A gate of all rows cannot be part of the launch of one.
  if (n > 1) gpu.flush();
}

// The rows of a sequence.
void attend_rows(GpuContext& gpu, const ops::Attention& op, Rows rows) {
  const KvView& kv = op.sequences.front().kv;
  const KeySelection& selected = op.options.selected;
  if (!op.options.pooled.is_null()) return attend_pooled(gpu, op, kv, rows);
  if (selected.is_null()) return attend(gpu, op, kv, rows);
  const int64_t n = op.q.dim(0);
  const int64_t dense = selected.dense_rows(n, kv.length);
  const auto slice = [&](int64_t row, int64_t count) {
    return op.part(0, [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, row, count); });
  };
  if (dense > 0) {
    ops::Attention some = slice(0, dense);
    some.options.selected = {};
    attend(gpu, some, kv, rows);
  }
  if (dense == n) return;
  KvView behind = kv;
  behind.length += dense;
  attend_selected(gpu, slice(dense, n - dense), behind, rows);
}

// A row of each of several sequences, whose keys and values one launch writes. Attention is one
// launch as well, unless rows choose keys or have those of pools.
void attend_each(GpuContext& gpu, const ops::Attention& op) {
  const KvView& kv = op.sequences.front().kv;
  AttentionHeads heads{op.out, op.q, op.k.dim(1), kv, op.options, {}};
  gpu.flush_tables();
  if (!place_tables(gpu.recorder(), op.sequences, heads.tables)) return;
  write_heads(gpu, {op.q, op.k, op.v, kv, heads.tables});
  if (op.options.selected.is_null() && op.options.pooled.is_null()) {
    (void)launch_attention(gpu, heads);
  } else {
    for_each_part(op, [&](const ops::Attention& one) { attend_rows(gpu, one, Rows::kWritten); });
  }
}

}  // namespace

Status supports(const Platform& /*platform*/, const ops::Attention& op) {
  if (op.out.dim(2) > kValueColumnsMax) {
    return make_error(ErrorCode::kUnsupported, "attention: values of {} per head, at most {}",
                      op.out.dim(2), kValueColumnsMax);
  }
  for (const KvRows& s : op.sequences) {
    if (s.rows == 0) continue;
    MF_RETURN_IF_ERROR(check_pages(op.kName, s.kv.k_pages));
    MF_RETURN_IF_ERROR(check_pages(op.kName, s.kv.v_pages));
    if (s.kv.k_pages.front().dtype != s.kv.v_pages.front().dtype) {
      return make_error(ErrorCode::kUnsupported, "attention: keys of {} with values of {}",
                        dtype_name(s.kv.k_pages.front().dtype),
                        dtype_name(s.kv.v_pages.front().dtype));
    }
  }
  for (const KvRows& s : op.options.pooled.sequences) {
    if (s.rows > 0) MF_RETURN_IF_ERROR(check_pages(op.kName, s.kv.k_pages));
  }
  return {};
}

void run(GpuContext& gpu, const ops::Attention& op) {
  for_each_run(op.sequences, op.rows(), true, [&](std::span<const KvRows> run, const auto& part) {
    const auto first = static_cast<size_t>(run.data() - op.sequences.data());
    ops::Attention own = op.part(first, part);
    if (run.size() == 1) return attend_rows(gpu, own, Rows::kNew);
    own.sequences = run;
    const PooledKeys& pooled = op.options.pooled;
    if (!pooled.is_null()) {
      own.options.pooled.sequences = pooled.sequences.subspan(first, run.size());
    }
    if (lie_alike(run)) return attend_each(gpu, own);
    for_each_part(own, [&](const ops::Attention& one) { attend_rows(gpu, one, Rows::kNew); });
  });
}

}  // namespace moeflux::gpu
