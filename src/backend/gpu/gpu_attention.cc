// The encoder's operations of attention: over all that a token sees, over keys that it has chosen,
// and the choice.
#include <algorithm>
#include <utility>

#include "backend/gathered_pages.h"
#include "backend/gpu/gpu_encoder.h"
#include "backend/gpu/plan_building.h"
#include "backend/pooled_pages.h"
#include "backend/sequence_rows.h"
#include "base/format.h"
#include "base/units.h"

namespace moeflux::gpu {
namespace {

constexpr int64_t kValueColumnsMax = int64_t{128} * kAttentionColumnsMax;  // attention_heads

bool have_equal_layouts(std::span<const Tensor> pages) {
  return std::all_of(pages.begin(), pages.end(), [&](const Tensor& page) {
    return page.strides == pages.front().strides && page.dtype == pages.front().dtype &&
           (page.dtype == DType::kF32 || page.dtype == DType::kF16 || page.dtype == DType::kI8);
  });
}

}  // namespace

void GpuEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                           std::span<const KvRows> sequences, const AttentionOptions& options) {
  MF_CHECK(q.dim(1) % k.dim(1) == 0 && k.dim(0) == q.dim(0) && q.dim(2) == k.dim(2));
  const KeySelection& selected = options.selected;
  if (!selected.is_null()) {
    MF_CHECK(options.window == 0 && selected.ids.dim(0) == q.dim(0) &&
             selected.ids.is_contiguous() && k.dim(1) % selected.groups() == 0);
  }
  const PooledKeys& pooled = options.pooled;
  MF_CHECK(pooled.is_null() ||
           (k.dim(1) == 1 && v.is_null() && selected.is_null() && !options.chunked &&
            out.dim(2) == q.dim(2) && pooled.keys.dim(2) == q.dim(2) &&
            (pooled.ids.is_null() || pooled.ids.is_contiguous())));
  size_t i = 0;
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    attend_rows({part(out), part(q), part(k), part(v), s.kv, options_of(options, i++, part)});
  });
}

void GpuEncoder::attend_rows(const AttendedRows& rows) {
  const KeySelection& selected = rows.options.selected;
  if (!rows.options.pooled.is_null()) return attend_pooled(rows);
  if (selected.is_null()) return attend(rows);
  const int64_t n = rows.q.dim(0);
  const int64_t dense = selected.dense_rows(n, rows.kv.length);
  const auto slice = [&](int64_t row, int64_t count) {
    const auto of = [&](const Tensor& x) { return x.is_null() ? x : x.slice(0, row, count); };
    AttendedRows some{of(rows.out), of(rows.q), of(rows.k), of(rows.v), rows.kv, rows.options};
    some.kv.length += row;
    some.options.selected = row < dense ? KeySelection{} : selected.slice(row, count);
    return some;
  };
  if (dense > 0) attend(slice(0, dense));
  if (dense < n) attend_selected(slice(dense, n - dense));
}

bool GpuEncoder::begin_attention(AttentionHeads& heads, const Tensor& k, const Tensor& v) {
  const KvView& kv = heads.kv;
  if (!recorder_.ok() || heads.q.dim(0) == 0) return false;
  MF_CHECK(have_equal_layouts(kv.k_pages) && have_equal_layouts(kv.v_pages) &&
           kv.k_pages.front().dtype == kv.v_pages.front().dtype);
  if (heads.out.dim(2) > kValueColumnsMax) {
    return recorder_.fail(make_error(ErrorCode::kUnsupported,
                                     "attention: values of {} per head, at most {}",
                                     heads.out.dim(2), kValueColumnsMax));
  }
  flush_tables();
  if (!recorder_.place_addresses(kv.k_pages, heads.k_table) ||
      !recorder_.place_addresses(kv.v_pages, heads.v_table)) {
    return false;
  }
  write_heads({heads.q, k, v, kv, heads.k_table, heads.v_table});
  return true;
}

void GpuEncoder::write_heads(const HeadsOp& op) {
  AllHeads waiting;
  if (can_write_heads(waiting_.heads, op.q, op.k, op.v)) {
    waiting = std::exchange(waiting_.heads, {});
  }
  flush();  // products, so that it is known what the launch before this one writes
  recorder_.record(plan_write_heads(recorder_, waiting, op));
}

void GpuEncoder::write_keys(const HeadsOp& op) {
  AllHeads own;
  AllHeads others;
  for (const Heads& heads : waiting_.heads) {
    (are_same(heads.x, op.k) ? own : others).push_back(heads);
  }
  if (own.empty() || !can_write_heads(own, op.q, op.k, op.v)) return write_heads(op);
  waiting_.heads = others;
  recorder_.record(plan_write_heads(recorder_, own, op));
}

void GpuEncoder::attend(const AttendedRows& rows) {
  AttentionHeads heads{rows.out, rows.q, rows.k.dim(1), rows.kv, rows.options, {}, {}};
  if (!begin_attention(heads, rows.k, rows.v)) return;
  AttentionResult result;
  if (!record_attention(recorder_, heads, result)) return;
  waiting_.attention = result.params.walks == 0 ? merge_op(heads, result) : result.last;
}

void GpuEncoder::attend_selected(const AttendedRows& rows) {
  const auto& [out, q, k, v, kv, options] = rows;
  ScratchScope scope(*this);
  const GatheredPages pages = take_gathered_pages(*this, options.selected, kv, !v.is_null());
  AttentionHeads heads{out, q, k.dim(1), kv, options, {}, {}};
  GatheredTables tables;
  if (!place_gathered(pages, tables) || !begin_attention(heads, k, v)) return;
  for (int64_t row = 0; row < q.dim(0); ++row) {
    flush();
    recorder_.record(plan_gather(
        {options.selected, kv, row, pages, !v.is_null(), heads.k_table, heads.v_table}));
    // To its token, what was gathered is the whole of a cache.
    const KvView gathered{.k_pages = {&pages.keys, 1},
                          .v_pages = {&pages.values, 1},
                          .page_tokens = pages.tokens,
                          .length = options.selected.keys_at(kv.length + row) - 1};
    AttentionHeads own{out.slice(0, row, 1),
                       q.slice(0, row, 1),
                       k.dim(1),
                       gathered,
                       {.scale = options.scale, .sinks = options.sinks},
                       tables.k,
                       tables.v};
    own.are_all_new = true;
    AttentionResult result;
    if (!record_attention(recorder_, own, result)) return;
    waiting_.attention = result.params.walks == 0 ? merge_op(own, result) : result.last;
  }
  // A gate of all rows cannot be part of the launch of one.
  if (q.dim(0) > 1) flush();
}

void GpuEncoder::attend_pooled(const AttendedRows& rows) {
  const auto& [out, q, k, v, kv, options] = rows;
  const PooledKeys& pooled = options.pooled;
  const int64_t n = q.dim(0);
  if (!recorder_.ok() || n == 0) return;
  const KvView& own = pooled.sequences.front().kv;
  const DType type = kv.k_pages.front().dtype;
  MF_CHECK(have_equal_layouts(own.k_pages) && own.k_pages.front().dtype == type &&
           type != DType::kI8 && own.length == kv.length);
  // Beside the workspace, which attention itself takes. It grows with the context, so that it is no
  // scratch.
  const auto num_keys = [&](int64_t row) {
    const int64_t position = rows.kv.length + row;
    return pooled.count_at(position) + position + 1 -
           first_seen(position, rows.options.window, false);
  };
  constexpr uint64_t kTokens = 256;  // whole tiles of every kernel
  const auto tokens =
      static_cast<int64_t>(round_up(static_cast<uint64_t>(num_keys(n - 1)), kTokens));
  Tensor keys;
  if (!recorder_.take_gathered({tokens, 1, q.dim(2)}, type, keys)) return;
  Binding pool_table;
  flush_tables();
  AttentionHeads heads{out, q, 1, kv, options, {}, {}};
  Binding gathered_table;
  if (!recorder_.place_addresses({&keys, 1}, gathered_table) ||
      !recorder_.place_addresses(own.k_pages, pool_table)) {
    return;
  }
  const KvView pools = append_index_keys({q, pooled.keys, {}, own, pool_table, pool_table},
                                         {.unit = pooled.unit, .recent = 1, .whole = true});
  if (!begin_attention(heads, k, v)) return;
  for (int64_t row = 0; row < n; ++row) {
    flush();
    recorder_.record(plan_gather_pooled({pooled, pools, kv, row, kv.length + row, options.window,
                                         keys, pool_table, heads.k_table}));
    // To its token, what was gathered is the whole of a cache.
    const KvView gathered{.k_pages = {&keys, 1},
                          .v_pages = {&keys, 1},
                          .page_tokens = tokens,
                          .length = num_keys(row) - 1};
    AttentionHeads one{out.slice(0, row, 1),
                       q.slice(0, row, 1),
                       1,
                       gathered,
                       {.scale = options.scale, .sinks = options.sinks},
                       gathered_table,
                       gathered_table};
    one.are_all_new = true;
    AttentionResult result;
    if (!record_attention(recorder_, one, result)) return;
    waiting_.attention = result.params.walks == 0 ? merge_op(one, result) : result.last;
  }
  // A gate of all rows cannot be part of the launch of one.
  if (n > 1) flush();
}

bool GpuEncoder::place_gathered(const GatheredPages& pages, GatheredTables& tables) {
  return recorder_.place_addresses({&pages.keys, 1}, tables.k) &&
         recorder_.place_addresses({&pages.values, 1}, tables.v);
}

void GpuEncoder::select_keys(Tensor ids, Tensor q, Tensor k, Tensor head_weights,
                             std::span<const KvRows> sequences, const SelectOptions& options) {
  MF_CHECK(q.dim(1) % ids.dim(1) == 0 && k.dim(1) == 1 && k.dim(2) == q.dim(2) &&
           ids.is_contiguous() && ids.dim(0) == q.dim(0) && q.strides[2] == 1 &&
           (options.unit == 1 || options.whole || options.recent >= 1) &&
           options.recent <= ids.dim(2) && (!options.whole || options.recent <= 1));
  if (!recorder_.ok()) return;
  if (!fits_select_kernels(q, options)) {
    recorder_.fail(make_error(ErrorCode::kUnsupported,
                              "select_keys: heads of {} and candidates of {} tokens", q.dim(2),
                              options.unit));
    return;
  }
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    if (s.rows == 0) return;
    MF_CHECK(have_equal_layouts(s.kv.k_pages) && s.kv.k_pages.front().dtype != DType::kI8);
    flush_tables();
    Binding table;
    if (!recorder_.place_addresses(s.kv.k_pages, table)) return;
    const KvView keys = append_index_keys({part(q), part(k), {}, s.kv, table, table}, options);
    flush();  // of queries, what their keys' launch left
    const KeySelection chosen = options.selection(part(ids));
    const int64_t dense = chosen.dense_rows(s.rows, s.kv.length);
    const int64_t rows = s.rows - dense;
    if (rows == 0) return;
    const Tensor weights = part(head_weights);
    record_select(recorder_, {chosen.ids.slice(0, dense, rows), part(q).slice(0, dense, rows),
                              weights.is_null() ? weights : weights.slice(0, dense, rows), keys,
                              s.kv.length + dense, options, table});
  });
}

KvView GpuEncoder::append_index_keys(const HeadsOp& op, const SelectOptions& options) {
  if (!options.whole) {
    write_heads(op);
    return op.kv;
  }
  if (op.k.dim(0) > 1) flush();  // an operation that waits for all rows is not for some
  KvView keys = pooled_view(op.kv, options.unit, op.k.dim(2), pooled_pages_);
  for_each_pooled_key(op.k, op.kv.length, options.unit, [&](const Tensor& rows, int64_t at) {
    keys.length = at;
    write_keys({{}, rows, {}, keys, op.k_table, op.v_table});
  });
  return keys;
}

void GpuEncoder::pool_rows(Tensor out, Tensor x, const PoolGates& gates, Tensor positions,
                           std::span<const StateRows> sequences, int64_t unit) {
  MF_CHECK(out.dim(0) == x.dim(0) && out.dim(1) * (gates.overlaps ? 2 : 1) == x.dim(1) &&
           out.is_contiguous() && x.is_contiguous() &&
           (gates.gate.is_null() ? !gates.overlaps : gates.gate.is_contiguous()) && unit >= 2 &&
           unit <= kPoolMax && positions.num_elements() == x.dim(0) &&
           positions.dtype == DType::kI32);
  for_each_sequence(sequences, x.dim(0), [&](const StateRows& s, const auto& part) {
    if (s.rows == 0) return;
    MF_CHECK(s.state.is_contiguous() && s.state.dim(0) == gates.kept_rows(unit));
    record(plan_pool({part(out),
                      part(x),
                      {part(gates.gate), gates.bias, gates.overlaps},
                      part(positions),
                      s.state,
                      unit}));
  });
}

void GpuEncoder::latent_attention(Tensor out, Tensor q, Tensor latent, Tensor positions,
                                  std::span<const KvRows> sequences, const LatentHeads& heads) {
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    if (heads.selected.is_null()) {
      return attend_latent(part(out), part(q), part(latent), part(positions), s, heads);
    }
    LatentHeads own = heads;
    own.selected.ids = part(heads.selected.ids);
    if (own.selected.dense_rows(s.rows, s.kv.length) == s.rows) own.selected = {};
    attend_latent(part(out), part(q), part(latent), part(positions), s, own);
  });
}

void GpuEncoder::attend_latent(const Tensor& out, const Tensor& q, const Tensor& latent,
                               const Tensor& positions, const KvRows& sequence,
                               const LatentHeads& heads) {
  if (!recorder_.ok() || q.dim(0) == 0) return;
  // The launches that write latents to their pages write no codes.
  const bool has_codes = sequence.kv.k_pages.front().dtype == DType::kI8;
  if (has_codes || !heads.selected.is_null() || !fits_latent_kernels(q, latent, heads)) {
    return Encoder::latent_attention(out, q, latent, positions, std::span(&sequence, 1), heads);
  }
  if (!supports("latent_attention", heads.k_up) || !supports("latent_attention", heads.v_up)) {
    return;
  }
  const int64_t rank = heads.v_up.cols;
  const int64_t nope = q.dim(2) - heads.rope.rotary_dim;
  MF_CHECK(heads.norm.num_elements() == rank && heads.norm.dtype == DType::kF32 &&
           positions.num_elements() == q.dim(0) && positions.dtype == DType::kI32 &&
           (heads.rope.rotary_dim == 0 ||
            heads.inverse_frequencies.num_elements() == heads.rope.rotary_dim / 2) &&
           heads.k_up.cols == (heads.k_up_is_transposed ? nope : rank) &&
           heads.k_rows.rows_per_head == (heads.k_up_is_transposed ? rank : nope) &&
           heads.v_rows.rows_per_head == out.dim(2));
  ScratchScope scope(*this);
  const Tensor query = scratch({q.dim(0), q.dim(1), latent.dim(1)}, DType::kF32);
  const Tensor mixed = scratch({q.dim(0), q.dim(1), rank}, DType::kF32);
  flush();  // so that the launch before is known
  record_latent_attention(recorder_, {out, q, latent, positions, sequence.kv, heads, query, mixed});
}

}  // namespace moeflux::gpu
