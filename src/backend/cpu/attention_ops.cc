// Attention over a paged cache: cuts it into tiles of tokens and heads, and long contexts of few
// tokens into segments as well.
#include <algorithm>

#include "backend/cpu/cached_pages.h"
#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "backend/pooled_pages.h"
#include "backend/sequence_rows.h"
#include "quant/q8_rows.h"

namespace moeflux::cpu {
namespace {

/// True when no token of the step overwrites what another one sees.
bool pages_cover(const KvView& kv, int64_t n, int64_t window) {
  const int64_t room = static_cast<int64_t>(kv.k_pages.size()) * kv.page_tokens;
  return kv.k_pages.size() == kv.v_pages.size() &&
         (kv.length + n <= room || (window > 0 && window - 1 + n <= room));
}

/// How a call is cut. Rows of a tile share keys and values: as many as the kernels take, but no
/// head of another kv head.
struct Tiling {
  int64_t group;           // heads a kv head
  int64_t heads_per_tile;  // of one kv head
  int64_t tokens_per_tile;
  int64_t head_parts;   // tiles side by side
  int64_t token_parts;  // tiles in the order of tokens

  Tiling(int64_t n, int64_t heads, int64_t kv_heads, bool share_keys) : group(heads / kv_heads) {
    const int64_t parts = (group + kAttentionRowsMax - 1) / kAttentionRowsMax;
    heads_per_tile = (group + parts - 1) / parts;
    tokens_per_tile = share_keys ? std::min(n, kAttentionRowsMax / heads_per_tile) : 1;
    head_parts = kv_heads * parts;
    token_parts = (n + tokens_per_tile - 1) / tokens_per_tile;
  }
  int64_t tiles() const { return head_parts * token_parts; }
};

struct Tile {
  int64_t kv_head;
  int64_t head;
  int64_t heads;
  int64_t token;
  int64_t tokens;
};

int64_t parts_per_kv_head(const Tiling& cut) {
  return (cut.group + cut.heads_per_tile - 1) / cut.heads_per_tile;
}

/// Tiles of later tokens, which see more, come first: threads finish together.
Tile tile_at(const Tiling& cut, int64_t n, int64_t index) {
  const int64_t parts = parts_per_kv_head(cut);
  const int64_t side = index % cut.head_parts;
  const int64_t kv_head = side / parts;
  const int64_t first = side % parts * cut.heads_per_tile;
  const int64_t token = (cut.token_parts - 1 - index / cut.head_parts) * cut.tokens_per_tile;
  return {kv_head, kv_head * cut.group + first, std::min(cut.heads_per_tile, cut.group - first),
          token, std::min(cut.tokens_per_tile, n - token)};
}

/// Segments [first, last).
struct Segments {
  int64_t first;
  int64_t last;
  int64_t count() const { return last - first; }
};

/// Pages as the kernels see them; with pools of keys, which are their own values, in pages of a row
/// a pool.
struct Pages {
  const uint8_t* const* keys;
  const uint8_t* const* values = nullptr;  // where there are no pools
  const uint8_t* const* pools = nullptr;
  int64_t page_pools = 0;  // in a page
};

/// One call of the op, in the terms of the kernels.
class Attention {
 public:
  Attention(const KernelTable& kernels, const Tiling& cut, Tensor out, Tensor q, const KvView& kv,
            const AttentionOptions& options, const Pages& pages)
      : cut_(cut),
        kernels_(kernels),
        kv_(kv),
        q_(q),
        out_(out),
        queries_(q),
        outs_(out),
        rows_((cut.tokens_per_tile * cut.heads_per_tile + 15) / 16 * 16),
        sinks_(floats_or_null(options.sinks)),
        selected_(options.selected),
        pooled_(options.pooled),
        pages_(pages),
        window_(options.window) {
    shared_.q_token_stride = q.strides[0];
    shared_.q_stride = q.strides[1];
    shared_.window = options.window;
    shared_.chunked = options.chunked && options.window > 0;
    shared_.k_pages = pages.keys;
    shared_.v_pages = pages.values;
    shared_.pages = static_cast<int64_t>(kv.k_pages.size());
    shared_.page_tokens = kv.page_tokens;
    shared_.k_type = cached_type(kv.k_pages[0]);
    shared_.v_type = cached_type(kv.v_pages[0]);
    shared_.k_scales = q8_rows::cols_of(kv.k_pages[0].dim(2));
    shared_.v_scales = q8_rows::cols_of(kv.v_pages[0].dim(2));
    shared_.k_stride = kv.k_pages[0].strides[0] * element_bytes(kv.k_pages[0]);
    shared_.v_stride = kv.v_pages[0].strides[0] * element_bytes(kv.v_pages[0]);
    shared_.head_dim = q.dim(2);
    shared_.v_head_dim = out.dim(2);
    shared_.scale = options.scale;
  }

  /// Multiplications by which the op's cost is judged.
  int64_t work() const {
    int64_t seen = shared_.window > 0 ? std::min(shared_.window, stored()) : stored();
    if (!selected_.is_null()) seen = selected_.dense_end();
    if (!pooled_.is_null()) seen = listed_keys(q_.dim(0) - 1);
    return q_.dim(0) * q_.dim(1) * seen * (q_.dim(2) + out_.dim(2));
  }
  Tile tile(int64_t index) const { return tile_at(cut_, q_.dim(0), index); }
  /// Positions that one of the tokens sees, or places of its list.
  Segments segments(int64_t token, int64_t tokens) const {
    if (are_listed()) return {0, (listed_keys(token) - 1) / kAttentionSegment + 1};
    const int64_t begin = first_seen(kv_.length + token, shared_.window, shared_.chunked);
    return {begin / kAttentionSegment, (kv_.length + token + tokens - 1) / kAttentionSegment + 1};
  }
  Segments segments(const Tile& tile) const { return segments(tile.token, tile.tokens); }
  /// An upper bound of segments() over all tokens.
  int64_t most_segments() const {
    if (!pooled_.is_null()) return segments(q_.dim(0) - 1, 1).count();
    if (selected_.is_null()) return segments(0, q_.dim(0)).count();
    return (selected_.dense_end() - 1) / kAttentionSegment + 1;
  }

  // Sizes of workspaces, in floats: whole cache lines.
  int64_t panel_size() const { return (q_.dim(2) + 15) / 16 * 16 * kAttentionPanelKeys; }
  int64_t state_size() const { return 2 * rows_; }
  int64_t part_size() const { return rows_ * (part_stride() + 2); }

  void attend(const Tile& tile, int64_t segment, float* part, float* panel) const {
    AttentionArgs args = shared_;
    args.q = queries_.row(tile.token * q_.dim(1) + tile.head);
    args.tokens = tile.tokens;
    args.heads = tile.heads;
    args.position = kv_.length + tile.token;
    args.begin = segment * kAttentionSegment;
    args.end = args.begin + kAttentionSegment;
    const Tensor& keys = kv_.k_pages[0];
    const Tensor& values = kv_.v_pages[0];
    args.kv_head_k_offset = tile.kv_head * keys.strides[1] * element_bytes(keys);
    args.kv_head_v_offset = tile.kv_head * values.strides[1] * element_bytes(values);
    args.workspace = panel;
    args.part = part_at(part);
    if (!are_listed()) return kernels_.attention(args);
    const uint8_t* k_rows[kAttentionSegment];
    const uint8_t* v_rows[kAttentionSegment];
    const int64_t listed = listed_keys(tile.token);
    const int64_t end = std::min(args.end, listed);
    if (pooled_.is_null()) {
      list_selected(tile, args, end, k_rows, v_rows);
    } else {
      list_pooled(tile, args, end, k_rows);
    }
    // To the kernel, each key is a page of its own, and places of the list are positions.
    args.position = listed - 1;
    args.window = 0;
    args.k_pages = k_rows;
    args.v_pages = pooled_.is_null() ? v_rows : k_rows;
    args.pages = kAttentionSegment;
    args.page_tokens = 1;
    kernels_.attention(args);
  }

  void fold(const Tile& tile, int64_t segment, const Segments& all, float* part,
            float* state) const {
    kernels_.attention_fold({.out = outs_.row(tile.token * out_.dim(1) + tile.head),
                             .out_token_stride = out_.strides[0],
                             .out_stride = out_.strides[1],
                             .tokens = tile.tokens,
                             .heads = tile.heads,
                             .v_head_dim = out_.dim(2),
                             .sinks = sinks_ == nullptr ? nullptr : sinks_ + tile.head,
                             .part = part_at(part),
                             .largest = state,
                             .total = state + rows_,
                             .is_first = segment == all.first,
                             .is_last = segment + 1 == all.last});
  }

 private:
  int64_t stored() const { return kv_.length + q_.dim(0); }
  bool are_listed() const { return !selected_.is_null() || !pooled_.is_null(); }
  int64_t listed_keys(int64_t token) const {
    const int64_t position = kv_.length + token;
    if (pooled_.is_null()) return selected_.keys_at(position);
    return pooled_.count_at(position) + position + 1 - first_seen(position, window_, false);
  }
  /// The rows of places [args.begin, end) of the list: those of pools, then those of tokens.
  void list_pooled(const Tile& tile, const AttentionArgs& args, int64_t end,
                   const uint8_t** rows) const {
    const int64_t position = kv_.length + tile.token;
    const int64_t pools = pooled_.count_at(position);
    const int32_t* ids = pooled_.chooses_at(position)
                             ? host_ptr<int32_t>(pooled_.ids) + tile.token * pooled_.ids.dim(2)
                             : nullptr;
    const int64_t row_bytes = args.head_dim * element_bytes(kv_.k_pages[0]);
    int64_t i = args.begin;
    for (; i < std::min(end, pools); ++i) {
      const int64_t pool = ids == nullptr ? i : ids[i];
      rows[i - args.begin] =
          pages_.pools[pool / pages_.page_pools] + pool % pages_.page_pools * row_bytes;
    }
    const int64_t first = first_seen(position, window_, false) - pools;
    for (; i < end; ++i) {
      const int64_t s = first + i;
      rows[i - args.begin] =
          pages_.keys[s / args.page_tokens % args.pages] + s % args.page_tokens * args.k_stride;
    }
  }
  /// The same of a choice of tokens.
  void list_selected(const Tile& tile, const AttentionArgs& args, int64_t end,
                     const uint8_t** k_rows, const uint8_t** v_rows) const {
    const int32_t* list = list_of(tile);
    // Divisions once for each run of keys that are neighbours in a page.
    for (int64_t i = args.begin; i < end;) {
      const int64_t offset = i % selected_.unit;
      const int64_t position = list[i / selected_.unit] * selected_.unit + offset;
      const int64_t page = position / args.page_tokens;
      const int64_t slot = position - page * args.page_tokens;
      const int64_t left = std::min(selected_.unit - offset, args.page_tokens - slot);
      const uint8_t* k_row = args.k_pages[page] + slot * args.k_stride;
      const uint8_t* v_row = args.v_pages[page] + slot * args.v_stride;
      for (const int64_t run = std::min(end, i + left); i < run; ++i) {
        k_rows[i - args.begin] = k_row;
        v_rows[i - args.begin] = v_row;
        k_row += args.k_stride;
        v_row += args.v_stride;
      }
    }
  }
  const int32_t* list_of(const Tile& tile) const {
    const int64_t kv_heads = cut_.head_parts / parts_per_kv_head(cut_);
    const int64_t group = tile.kv_head / (kv_heads / selected_.groups());
    return host_ptr<int32_t>(selected_.ids) +
           (tile.token * selected_.groups() + group) * selected_.most();
  }
  int64_t part_stride() const { return (out_.dim(2) + 15) / 16 * 16; }
  AttentionPart part_at(float* space) const {
    float* largest = space + rows_ * part_stride();
    return {largest, largest + rows_, space, part_stride()};
  }

  const Tiling& cut_;
  const KernelTable& kernels_;
  const KvView& kv_;
  const Tensor q_;
  const Tensor out_;
  const RowsView queries_;
  const RowsView outs_;
  const int64_t rows_;  // room for a tile's
  const float* const sinks_;
  const KeySelection selected_;
  const PooledKeys pooled_;
  const Pages pages_;
  const int64_t window_;
  AttentionArgs shared_{};
};

}  // namespace

void CpuEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                           std::span<const KvRows> sequences, const AttentionOptions& options) {
  flush();
  size_t i = 0;
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    append_and_attend(part(out), part(q), part(k), part(v), s.kv, options_of(options, i++, part));
  });
}

void CpuEncoder::append_and_attend(const Tensor& out, const Tensor& q, const Tensor& k,
                                   const Tensor& v, const KvView& kv,
                                   const AttentionOptions& options) {
  const int64_t n = q.dim(0);
  const int64_t heads = q.dim(1);
  const int64_t kv_heads = k.dim(1);
  MF_CHECK(kv_heads > 0 && heads % kv_heads == 0 && k.dim(0) == n && out.dim(0) == n &&
           out.dim(1) == heads && k.dim(2) == q.dim(2));
  MF_CHECK(v.is_null() || (v.dim(0) == n && v.dim(1) == kv_heads && v.dim(2) == out.dim(2)));
  if (!status_.ok() || n == 0) return;
  MF_CHECK(pages_cover(kv, n, options.window));
  append_to_cache(kernels_, k, kv.k_pages, kv);
  if (!v.is_null()) append_to_cache(kernels_, v, kv.v_pages, kv);
  const KeySelection& selected = options.selected;
  const PooledKeys& pooled = options.pooled;
  if (!pooled.is_null()) {
    const KvView& own = pooled.sequences.front().kv;
    MF_CHECK(kv_heads == 1 && v.is_null() && selected.is_null() && !options.chunked &&
             out.dim(2) == q.dim(2) && own.length == kv.length && pooled.keys.dim(2) == q.dim(2) &&
             own.k_pages[0].dtype == kv.k_pages[0].dtype && own.k_pages[0].dtype != DType::kI8 &&
             (pooled.ids.is_null() || pooled.ids.is_contiguous()));
    (void)append_index_keys(pooled.keys, own, {.unit = pooled.unit, .recent = 1, .whole = true});
  }
  if (selected.is_null()) return attend(out, q, kv_heads, kv, options);
  MF_CHECK(options.window == 0 && selected.ids.dim(0) == n && selected.ids.is_contiguous() &&
           kv_heads % selected.groups() == 0);
  const int64_t dense = selected.dense_rows(n, kv.length);
  AttentionOptions own = options;
  own.selected = {};
  if (dense > 0) attend(out.slice(0, 0, dense), q.slice(0, 0, dense), kv_heads, kv, own);
  if (dense == n) return;
  own.selected = selected.slice(dense, n - dense);
  KvView later = kv;
  later.length += dense;
  attend(out.slice(0, dense, n - dense), q.slice(0, dense, n - dense), kv_heads, later, own);
}

void CpuEncoder::attend(const Tensor& out, const Tensor& q, int64_t kv_heads, const KvView& kv,
                        const AttentionOptions& options) {
  const int64_t n = q.dim(0);
  const int64_t heads = q.dim(1);
  const PooledKeys& pooled = options.pooled;
  const Tiling cut(n, heads, kv_heads, options.selected.is_null() && pooled.is_null());
  Pages pages{.keys = page_pointers(kv.k_pages, k_pages_)};
  if (pooled.is_null()) {
    pages.values = page_pointers(kv.v_pages, v_pages_);
  } else {
    const KvView& own = pooled.sequences.front().kv;
    pages.pools = page_pointers(own.k_pages, v_pages_);
    pages.page_pools = own.page_tokens / pooled.unit;
  }
  const Attention op(kernels_, cut, out, q, kv, options, pages);
  const int64_t part = op.panel_size() + op.state_size();  // where a slot's part begins
  const int64_t slot_size = part + op.part_size();
  float* slots = aligned_workspace(floats_, slot_count() * slot_size);
  const int64_t most = op.most_segments();
  constexpr int64_t kTilesPerThread = 4;
  if (cut.tiles() >= kTilesPerThread * pool_.threads() || most == 1) {
    for_tasks_in_slots(cut.tiles(), op.work(), [&](int64_t task, int64_t slot) {
      float* space = slots + slot * slot_size;
      const Tile tile = op.tile(task);
      const Segments all = op.segments(tile);
      for (int64_t s = all.first; s < all.last; ++s) {
        op.attend(tile, s, space + part, space);
        op.fold(tile, s, all, space + part, space + op.panel_size());
      }
    });
    return;
  }
  // Few tiles: their segments are tasks of their own, folded when all are there.
  float* parts = aligned_workspace(attention_parts_, cut.tiles() * most * op.part_size());
  for_tasks_in_slots(cut.tiles() * most, op.work(), [&](int64_t task, int64_t slot) {
    const Tile tile = op.tile(task / most);
    const Segments all = op.segments(tile);
    const int64_t segment = all.first + task % most;
    if (segment >= all.last) return;
    op.attend(tile, segment, parts + task * op.part_size(), slots + slot * slot_size);
  });
  const int64_t fold_work = n * heads * most * out.dim(2);
  for_tasks_in_slots(cut.tiles(), fold_work, [&](int64_t task, int64_t slot) {
    const Tile tile = op.tile(task);
    const Segments all = op.segments(tile);
    float* state = slots + slot * slot_size + op.panel_size();
    for (int64_t s = all.first; s < all.last; ++s) {
      op.fold(tile, s, all, parts + (task * most + s - all.first) * op.part_size(), state);
    }
  });
}

}  // namespace moeflux::cpu
