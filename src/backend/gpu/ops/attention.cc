// Attention over all that a token sees, over keys that it has chosen, and over keys of pools.
#include "backend/ops/attention.h"

#include <algorithm>

#include "backend/gpu/gpu_context.h"
#include "backend/gpu/launch/attention_plans.h"
#include "backend/gpu/launch/heads_plans.h"
#include "backend/gpu/launch/plan_building.h"
#include "backend/gpu/supports.h"
#include "backend/listed_keys.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

constexpr int64_t kValueColumnsMax = int64_t{128} * kAttentionColumnsMax;  // attention_heads
constexpr uint32_t kGatherThreads = 128;

// Rows that attend to keys which launches bring together: of a sequence, or one of each of several.
// To the launches of attention each is a sequence's only token, whose cache holds these keys alone.
struct Listing {
  const ops::Attention& op;
  const KvView& kv;         // of the first sequence, up to its first row here
  int64_t page_tokens = 0;  // of a row's page
  Tensor keys;              // [rows at once * page_tokens, kv_heads, columns]
  Tensor values;            // the same, or a view of the keys

  bool is_of_one() const { return op.sequences.size() == 1; }
  bool is_pooled() const { return !op.options.pooled.is_null(); }
  bool has_values() const { return !op.v.is_null(); }
  int64_t position(int64_t row) const {
    return is_of_one() ? kv.length + row : op.sequences[static_cast<size_t>(row)].kv.length;
  }
  /// The keys that a row chose, or all that it sees if it chose none; with pools, theirs and
  /// tokens'.
  int64_t num_keys(int64_t row) const {
    const int64_t at = position(row);
    if (is_pooled()) {
      return op.options.pooled.count_at(at) + at + 1 - first_seen(at, op.options.window, false);
    }
    const KeySelection& selected = op.options.selected;
    return at < selected.dense_end() ? at + 1 : selected.keys_at(at);
  }
};

// Some of its rows, with their sequences and the tables of these.
struct ListedRows {
  int64_t first = 0;
  int64_t count = 0;
  int64_t keys_most = 0;  // of any of them
  std::span<const KvRows> sequences;
  KvTables tables;
  KvTables pools;

  const KvView& kv() const { return sequences.front().kv; }
};

uint64_t bytes_of(const Tensor& page, int64_t elements) {
  return static_cast<uint64_t>(elements * dtype_bits(page.dtype) / 8);
}

uint64_t page_bytes(const Tensor& page, int64_t tokens) {
  return bytes_of(page, tokens * page.dim(1) * page.dim(2));
}

// Whether test(kv) is true of all sequences.
template <typename Test>
bool all_of_kv(std::span<const KvRows> sequences, const Test& test) {
  return std::all_of(sequences.begin(), sequences.end(),
                     [&](const KvRows& s) { return test(s.kv); });
}

uint32_t gather_groups(const ListedRows& rows) {
  return groups_for(static_cast<uint64_t>(rows.keys_most), kGatherThreads / kSimdLanes);
}

Plan plan_gather(const Listing& listing, const ListedRows& rows) {
  const ops::Attention& op = listing.op;
  const KeySelection& selected = op.options.selected;
  const bool has_values = listing.has_values();
  const Tensor& k = rows.kv().k_pages.front();
  const Tensor& v = rows.kv().v_pages.front();
  GatherParams p{};
  p.lengths = rows.tables.lengths;
  p.k_token_bytes = bytes_of(k, k.strides[0]);
  p.k_head_bytes = bytes_of(k, k.strides[1]);
  p.v_token_bytes = bytes_of(v, v.strides[0]);
  p.v_head_bytes = bytes_of(v, v.strides[1]);
  p.k_row_bytes = static_cast<u32>(bytes_of(k, k.dim(2)));
  p.v_row_bytes = static_cast<u32>(bytes_of(v, v.dim(2)));
  p.row_keys = static_cast<u32>(listing.page_tokens);
  p.begin = static_cast<u32>(listing.position(rows.first));
  p.dense_end = static_cast<u32>(selected.dense_end());
  p.most = static_cast<u32>(selected.most());
  p.unit = static_cast<u32>(selected.unit);
  p.whole = selected.whole ? 1 : 0;
  p.kv_heads = static_cast<u32>(k.dim(1));
  p.group_kv_heads = p.kv_heads / static_cast<u32>(selected.groups());
  p.page_tokens = static_cast<u32>(rows.kv().page_tokens);
  p.num_pages = static_cast<u32>(rows.kv().k_pages.size());
  const auto are_wide = [&](std::span<const Tensor> KvView::*pages) {
    return have_wide_rows(rows.tables, rows.kv(), pages);
  };
  p.wide = are_wide(&KvView::k_pages) && (!has_values || are_wide(&KvView::v_pages)) ? 1 : 0;
  Plan plan = make_plan(
      KernelId::gather_rows,
      {gather_groups(rows), p.kv_heads * (has_values ? 2U : 1U), static_cast<uint32_t>(rows.count)},
      kGatherThreads);
  plan.set_params(p);
  plan.bind(range_of(selected.ids.slice(0, rows.first, rows.count), Access::kRead));
  plan.bind(rows.tables.keys);
  plan.bind(rows.tables.values);
  plan.bind(range_of(listing.keys, Access::kWrite));
  plan.bind(has_values ? range_of(listing.values, Access::kWrite) : Binding{});
  return plan;
}

Plan plan_gather_pooled(const Listing& listing, const ListedRows& rows) {
  const ops::Attention& op = listing.op;
  const PooledKeys& pooled = op.options.pooled;
  const Tensor& page = rows.kv().k_pages.front();
  GatherPooledParams p{};
  p.lengths = rows.tables.lengths;
  p.token_bytes = bytes_of(page, page.strides[0]);
  p.row_bytes = static_cast<u32>(bytes_of(page, page.dim(2)));
  p.row_keys = static_cast<u32>(listing.page_tokens);
  p.begin = static_cast<u32>(listing.position(rows.first));
  p.most = pooled.ids.is_null() ? 0 : static_cast<u32>(pooled.ids.dim(2));
  p.unit = static_cast<u32>(pooled.unit);
  p.window = static_cast<u32>(op.options.window);
  p.page_pools = static_cast<u32>(pooled.sequences.front().kv.page_tokens / pooled.unit);
  p.page_tokens = static_cast<u32>(rows.kv().page_tokens);
  p.num_pages = static_cast<u32>(rows.kv().k_pages.size());
  // Rows of pools are as wide as those of tokens, and lie behind one another.
  const auto begins_wide = [](const Tensor& pools) { return pools.offset_bytes % 16 == 0; };
  p.wide =
      have_wide_rows(rows.tables, rows.kv(), &KvView::k_pages) &&
              all_of_kv(pooled.sequences,
                        [&](const KvView& kv) {
                          return std::all_of(kv.k_pages.begin(), kv.k_pages.end(), begins_wide);
                        })
          ? 1
          : 0;
  Plan plan =
      make_plan(KernelId::gather_pooled,
                {gather_groups(rows), 1, static_cast<uint32_t>(rows.count)}, kGatherThreads);
  plan.set_params(p);
  plan.bind(p.most == 0 ? Binding{}
                        : range_of(pooled.ids.slice(0, rows.first, rows.count), Access::kRead));
  plan.bind(rows.pools.keys);
  plan.bind(rows.tables.keys);
  plan.bind(range_of(listing.keys, Access::kWrite));
  return plan;
}

// Places the tables of pages and writes keys and values to them.
bool begin_attention(GpuContext& gpu, AttentionHeads& heads, const ops::Attention& op) {
  gpu.flush_tables();
  if (!place_tables(gpu.recorder(), heads.kv, heads.tables)) return false;
  write_heads(gpu, {heads.q, op.k, op.v, heads.kv, heads.tables});
  return true;
}

// The last launch waits.
bool launch_attention(GpuContext& gpu, const AttentionHeads& heads) {
  AttentionResult result;
  if (!record_attention(gpu.recorder(), heads, result)) return false;
  gpu.waiting().attention = result.params.walks == 0 ? merge_op(heads, result) : result.last;
  return true;
}

void attend(GpuContext& gpu, const ops::Attention& op, const KvView& kv) {
  AttentionHeads heads{op.out, op.q, op.k.dim(1), kv, op.options, {}};
  if (begin_attention(gpu, heads, op)) (void)launch_attention(gpu, heads);
}

// Takes room for the keys of `rows` rows, in a buffer that grows only for longer ones.
bool take_pages(Recorder& recorder, Listing& listing, int64_t rows, uint64_t least_bytes) {
  const Tensor& k = listing.kv.k_pages.front();
  const Tensor& v = listing.kv.v_pages.front();
  const int64_t tokens = rows * listing.page_tokens;
  const uint64_t key_bytes = page_bytes(k, tokens);
  const uint64_t value_bytes = listing.has_values() ? page_bytes(v, tokens) : 0;
  Binding space;
  if (!recorder.take_gathered(std::max(key_bytes + value_bytes, least_bytes), space)) return false;
  const auto view = [&](uint64_t offset, const Tensor& page) {
    return Tensor::view(*space.buffer, space.offset_bytes + offset,
                        {tokens, page.dim(1), page.dim(2)}, page.dtype);
  };
  listing.keys = view(0, k);
  listing.values = listing.has_values() ? view(key_bytes, v) : listing.keys.slice(2, 0, v.dim(2));
  return true;
}

// Each row as a sequence whose page is the room of its keys.
void list_rows(const Listing& listing, ListedRows& rows, GatheredRows& gathered) {
  gathered.pages.resize(static_cast<size_t>(2 * rows.count));
  gathered.sequences.clear();
  const std::span<Tensor> pages = gathered.pages;
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto own = pages.subspan(static_cast<size_t>(2 * i), 2);
    const int64_t begin = i * listing.page_tokens;
    const int64_t keys = listing.num_keys(rows.first + i);
    rows.keys_most = std::max(rows.keys_most, keys);
    own[0] = listing.keys.slice(0, begin, listing.page_tokens);
    own[1] = listing.values.slice(0, begin, listing.page_tokens);
    gathered.sequences.push_back({1,
                                  {.k_pages = own.first(1),
                                   .v_pages = own.last(1),
                                   .page_tokens = listing.page_tokens,
                                   .length = keys - 1}});
  }
}

bool attend_listed_rows(GpuContext& gpu, const Listing& listing, ListedRows rows) {
  Recorder& recorder = gpu.recorder();
  const ops::Attention& op = listing.op;
  const std::span<const KvRows> pools = op.options.pooled.sequences;
  GatheredRows& gathered = gpu.gathered_rows();
  list_rows(listing, rows, gathered);
  const std::span<const KvRows> sequences = gathered.sequences;
  const KvView& first = sequences.front().kv;
  AttentionHeads heads{op.out.slice(0, rows.first, rows.count),
                       op.q.slice(0, rows.first, rows.count),
                       op.k.dim(1),
                       first,
                       {.scale = op.options.scale, .sinks = op.options.sinks},
                       {}};
  heads.are_all_new = true;
  gpu.flush();  // what the tables of these rows may take the place of
  const auto own = [&](std::span<const KvRows> all) {
    return listing.is_of_one() ? all
                               : all.subspan(static_cast<size_t>(rows.first), sequences.size());
  };
  rows.sequences = own(op.sequences);
  if (!recorder.make_room(table_bytes(rows.sequences) + table_bytes(pools) +
                          table_bytes(sequences)) ||
      !place_tables(recorder, rows.sequences, rows.tables) ||
      (listing.is_pooled() && !place_tables(recorder, own(pools), rows.pools)) ||
      !place_tables(recorder, sequences, heads.tables)) {
    return false;
  }
  recorder.record(listing.is_pooled() ? plan_gather_pooled(listing, rows)
                                      : plan_gather(listing, rows));
  return launch_attention(gpu, heads);
}

// Keys and values are in their pages. Rows are taken together as far as a workspace has room.
void attend_listed(GpuContext& gpu, Listing listing) {
  constexpr int64_t kRowsMax = 256;  // tables are written for each
  const KvView& kv = listing.kv;
  const int64_t n = listing.op.q.dim(0);
  int64_t most = 0;
  for (int64_t row = 0; row < n; ++row) most = std::max(most, listing.num_keys(row));
  listing.page_tokens = static_cast<int64_t>(listed_page_tokens(static_cast<uint64_t>(most)));
  const uint64_t row_bytes =
      page_bytes(kv.k_pages.front(), listing.page_tokens) +
      (listing.has_values() ? page_bytes(kv.v_pages.front(), listing.page_tokens) : 0);
  const uint64_t room = gpu.platform().workspace_bytes_max();
  const auto at_once =
      std::clamp<int64_t>(static_cast<int64_t>(room / row_bytes), 1, std::min(n, kRowsMax));
  if (!take_pages(gpu.recorder(), listing, at_once, at_once > 1 ? room : 0)) return;
  for (int64_t row = 0; row < n; row += at_once) {
    if (!attend_listed_rows(gpu, listing, {row, std::min(at_once, n - row)})) return;
  }
  // A gate of all rows cannot be part of the launch of some.
  if (at_once < n) gpu.flush();
}

// Appends the keys of pools.
bool append_pooled(GpuContext& gpu, const ops::Attention& op) {
  const PooledKeys& pooled = op.options.pooled;
  const KvView& own = pooled.sequences.front().kv;
  gpu.flush_tables();
  KvTables tables;
  if (!place_tables(gpu.recorder(), pooled.sequences, tables)) return false;
  (void)append_index_keys(gpu, {op.q, pooled.keys, {}, own, tables},
                          {.unit = pooled.unit, .recent = 1, .whole = true});
  return true;
}

// The rows of a sequence.
void attend_rows(GpuContext& gpu, const ops::Attention& op) {
  const KvView& kv = op.sequences.front().kv;
  const KeySelection& selected = op.options.selected;
  const int64_t n = op.q.dim(0);
  const bool is_pooled = !op.options.pooled.is_null();
  const int64_t dense = is_pooled ? 0 : selected.is_null() ? n : selected.dense_rows(n, kv.length);
  const auto slice = [&](int64_t row, int64_t count) {
    return op.part(0, [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, row, count); });
  };
  if (dense > 0) {
    ops::Attention some = slice(0, dense);
    some.options.selected = {};
    attend(gpu, some, kv);
  }
  if (dense == n) return;
  const ops::Attention others = slice(dense, n - dense);
  if (is_pooled && !append_pooled(gpu, others)) return;
  KvView behind = kv;
  behind.length += dense;
  AttentionHeads heads{others.out, others.q, op.k.dim(1), behind, op.options, {}};
  if (begin_attention(gpu, heads, others)) attend_listed(gpu, {others, behind});
}

// A row of each of several sequences, whose keys and values one launch writes.
void attend_each(GpuContext& gpu, ops::Attention op) {
  const KvView& kv = op.sequences.front().kv;
  KeySelection& selected = op.options.selected;
  const bool is_pooled = !op.options.pooled.is_null();
  if (!selected.is_null() && all_of_kv(op.sequences, [&](const KvView& own) {
        return own.length < selected.dense_end();
      })) {
    selected = {};
  }
  if (is_pooled && !append_pooled(gpu, op)) return;
  AttentionHeads heads{op.out, op.q, op.k.dim(1), kv, op.options, {}};
  gpu.flush_tables();
  if (!place_tables(gpu.recorder(), op.sequences, heads.tables)) return;
  write_heads(gpu, {op.q, op.k, op.v, kv, heads.tables});
  if (selected.is_null() && !is_pooled) {
    (void)launch_attention(gpu, heads);
    return;
  }
  attend_listed(gpu, {op, kv});
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
    if (run.size() == 1) return attend_rows(gpu, own);
    own.sequences = run;
    const PooledKeys& pooled = op.options.pooled;
    if (!pooled.is_null()) {
      own.options.pooled.sequences = pooled.sequences.subspan(first, run.size());
    }
    if (lie_alike(run)) return attend_each(gpu, own);
    for_each_part(own, [&](const ops::Attention& one) { attend_rows(gpu, one); });
  });
}

}  // namespace moeflux::gpu
