// Attention over a paged cache: cuts it into tiles of tokens and heads, and long contexts of few
// tokens into segments as well.
#include "backend/ops/attention.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/cached_pages.h"
#include "backend/cpu/cpu_context.h"
#include "backend/sequence_rows.h"
#include "quant/q8_rows.h"

namespace moeflux::cpu {
namespace {

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
class AttentionCall {
 public:
  AttentionCall(const KernelTable& kernels, const Tiling& cut, const ops::Attention& op,
                const KvView& kv, const Pages& pages)
      : cut_(cut),
        kernels_(kernels),
        op_(op),
        kv_(kv),
        queries_(op.q),
        outs_(op.out),
        rows_((cut.tokens_per_tile * cut.heads_per_tile + 15) / 16 * 16),
        sinks_(floats_or_null(op.options.sinks)),
        sink_stride_(op.options.sinks.shape.rank() == 2 ? op.q.dim(1) : 0),
        bias_(floats_or_null(op.options.distance_bias)),
        pages_(pages) {
    shared_.q_token_stride = op.q.strides[0];
    shared_.q_stride = op.q.strides[1];
    shared_.window = op.options.window;
    shared_.chunked = op.options.chunked && op.options.window > 0;
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
    shared_.head_dim = op.q.dim(2);
    shared_.v_head_dim = op.out.dim(2);
    shared_.scale = op.options.scale;
    if (bias_ != nullptr) shared_.bias_extent = op.options.distance_bias.dim(2);
    shared_.bias_stride = op.q.dim(1) * shared_.bias_extent;
  }

  /// Multiplications by which the op's cost is judged.
  int64_t work() const {
    int64_t seen = shared_.window > 0 ? std::min(shared_.window, stored()) : stored();
    if (!selected().is_null()) seen = selected().dense_end();
    if (!pooled().is_null()) seen = listed_keys(op_.q.dim(0) - 1);
    return op_.q.dim(0) * op_.q.dim(1) * seen * (op_.q.dim(2) + op_.out.dim(2));
  }
  Tile tile(int64_t index) const { return tile_at(cut_, op_.q.dim(0), index); }
  /// Positions that one of the tokens sees, or places of its list.
  Segments segments(int64_t token, int64_t tokens) const {
    if (are_listed()) return {0, (listed_keys(token) - 1) / kAttentionSegment + 1};
    const int64_t begin = first_seen(kv_.length + token, shared_.window, shared_.chunked);
    return {begin / kAttentionSegment, (kv_.length + token + tokens - 1) / kAttentionSegment + 1};
  }
  Segments segments(const Tile& tile) const { return segments(tile.token, tile.tokens); }
  /// An upper bound of segments() over all tokens.
  int64_t most_segments() const {
    if (!pooled().is_null()) return segments(op_.q.dim(0) - 1, 1).count();
    if (selected().is_null()) return segments(0, op_.q.dim(0)).count();
    return (selected().dense_end() - 1) / kAttentionSegment + 1;
  }

  // Sizes of workspaces, in floats: whole cache lines.
  int64_t panel_size() const { return (op_.q.dim(2) + 15) / 16 * 16 * kAttentionPanelKeys; }
  int64_t state_size() const { return 2 * rows_; }
  int64_t part_size() const { return rows_ * (part_stride() + 2); }

  void attend(const Tile& tile, int64_t segment, float* part, float* panel) const {
    AttentionArgs args = shared_;
    args.q = queries_.row(tile.token * op_.q.dim(1) + tile.head);
    args.tokens = tile.tokens;
    args.heads = tile.heads;
    args.position = kv_.length + tile.token;
    if (bias_ != nullptr) {
      args.bias = bias_ + tile.token * args.bias_stride + tile.head * args.bias_extent;
    }
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
    if (pooled().is_null()) {
      list_selected(tile, args, end, k_rows, v_rows);
    } else {
      list_pooled(tile, args, end, k_rows);
    }
    // To the kernel, each key is a page of its own, and places of the list are positions.
    args.position = listed - 1;
    args.window = 0;
    args.k_pages = k_rows;
    args.v_pages = pooled().is_null() ? v_rows : k_rows;
    args.pages = kAttentionSegment;
    args.page_tokens = 1;
    kernels_.attention(args);
  }

  void fold(const Tile& tile, int64_t segment, const Segments& all, float* part,
            float* state) const {
    kernels_.attention_fold(
        {.out = outs_.row(tile.token * op_.out.dim(1) + tile.head),
         .out_token_stride = op_.out.strides[0],
         .out_stride = op_.out.strides[1],
         .tokens = tile.tokens,
         .heads = tile.heads,
         .v_head_dim = op_.out.dim(2),
         .sinks = sinks_ == nullptr ? nullptr : sinks_ + tile.token * sink_stride_ + tile.head,
         .sink_stride = sink_stride_,
         .part = part_at(part),
         .largest = state,
         .total = state + rows_,
         .is_first = segment == all.first,
         .is_last = segment + 1 == all.last});
  }

 private:
  const KeySelection& selected() const { return op_.options.selected; }
  const PooledKeys& pooled() const { return op_.options.pooled; }
  int64_t stored() const { return kv_.length + op_.q.dim(0); }
  bool are_listed() const { return !selected().is_null() || !pooled().is_null(); }
  int64_t listed_keys(int64_t token) const {
    const int64_t position = kv_.length + token;
    if (pooled().is_null()) return selected().keys_at(position);
    return pooled().count_at(position) + position + 1 -
           first_seen(position, op_.options.window, false);
  }
  /// The rows of places [args.begin, end) of the list: those of pools, then those of tokens.
  void list_pooled(const Tile& tile, const AttentionArgs& args, int64_t end,
                   const uint8_t** rows) const {
    const int64_t position = kv_.length + tile.token;
    const int64_t pools = pooled().count_at(position);
    const int32_t* ids = pooled().chooses_at(position)
                             ? host_ptr<int32_t>(pooled().ids) + tile.token * pooled().ids.dim(2)
                             : nullptr;
    const int64_t row_bytes = args.head_dim * element_bytes(kv_.k_pages[0]);
    int64_t i = args.begin;
    for (; i < std::min(end, pools); ++i) {
      const int64_t pool = ids == nullptr ? i : ids[i];
      rows[i - args.begin] =
          pages_.pools[pool / pages_.page_pools] + pool % pages_.page_pools * row_bytes;
    }
    const int64_t first = first_seen(position, op_.options.window, false) - pools;
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
      const int64_t offset = i % selected().unit;
      const int64_t position = list[i / selected().unit] * selected().unit + offset;
      const int64_t page = position / args.page_tokens;
      const int64_t slot = position - page * args.page_tokens;
      const int64_t left = std::min(selected().unit - offset, args.page_tokens - slot);
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
    const int64_t group = tile.kv_head / (kv_heads / selected().groups());
    return host_ptr<int32_t>(selected().ids) +
           (tile.token * selected().groups() + group) * selected().most();
  }
  int64_t part_stride() const { return (op_.out.dim(2) + 15) / 16 * 16; }
  AttentionPart part_at(float* space) const {
    float* largest = space + rows_ * part_stride();
    return {largest, largest + rows_, space, part_stride()};
  }

  const Tiling& cut_;
  const KernelTable& kernels_;
  const ops::Attention& op_;
  const KvView& kv_;
  const RowsView queries_;
  const RowsView outs_;
  const int64_t rows_;  // room for a tile's
  const float* const sinks_;
  const int64_t sink_stride_;
  const float* const bias_;
  const Pages pages_;
  AttentionArgs shared_{};
};

struct AttentionSpaces {
  std::vector<const uint8_t*> k_pages;
  std::vector<const uint8_t*> v_pages;
  std::vector<Tensor> pools;
  AlignedSpace parts;
};

/// The op's queries, of which the first is the token behind `kv`.
void attend(CpuContext& context, const ops::Attention& op, const KvView& kv) {
  AttentionSpaces& spaces = context.spaces.of<AttentionSpaces>();
  const int64_t threads = context.workers.threads();
  const int64_t heads = op.q.dim(1);
  const PooledKeys& pooled = op.options.pooled;
  const bool share_keys = op.options.selected.is_null() && pooled.is_null();
  const Tiling cut(op.rows(), heads, op.k.dim(1), share_keys);
  Pages pages{.keys = page_pointers(kv.k_pages, spaces.k_pages)};
  if (pooled.is_null()) {
    pages.values = page_pointers(kv.v_pages, spaces.v_pages);
  } else {
    const KvView& own = pooled.sequences.front().kv;
    pages.pools = page_pointers(own.k_pages, spaces.v_pages);
    pages.page_pools = own.page_tokens / pooled.unit;
  }
  const AttentionCall call(context.kernels, cut, op, kv, pages);
  const int64_t part = call.panel_size() + call.state_size();  // where a slot's part begins
  const int64_t slot_size = part + call.part_size();
  float* slots = context.spaces.floats(threads * slot_size);
  const int64_t most = call.most_segments();
  constexpr int64_t kTilesPerThread = 4;
  if (cut.tiles() >= kTilesPerThread * threads || most == 1) {
    context.workers.for_tasks(cut.tiles(), call.work(), [&](int64_t task, int64_t thread) {
      float* space = slots + thread * slot_size;
      const Tile tile = call.tile(task);
      const Segments all = call.segments(tile);
      for (int64_t s = all.first; s < all.last; ++s) {
        call.attend(tile, s, space + part, space);
        call.fold(tile, s, all, space + part, space + call.panel_size());
      }
    });
    return;
  }
  // Few tiles: their segments are tasks of their own, folded when all are there.
  float* parts = spaces.parts.floats(cut.tiles() * most * call.part_size());
  context.workers.for_tasks(cut.tiles() * most, call.work(), [&](int64_t task, int64_t thread) {
    const Tile tile = call.tile(task / most);
    const Segments all = call.segments(tile);
    const int64_t segment = all.first + task % most;
    if (segment >= all.last) return;
    call.attend(tile, segment, parts + task * call.part_size(), slots + thread * slot_size);
  });
  const int64_t fold_work = op.q.dim(0) * heads * most * op.out.dim(2);
  context.workers.for_tasks(cut.tiles(), fold_work, [&](int64_t task, int64_t thread) {
    const Tile tile = call.tile(task);
    const Segments all = call.segments(tile);
    float* state = slots + thread * slot_size + call.panel_size();
    for (int64_t s = all.first; s < all.last; ++s) {
      call.fold(tile, s, all, parts + (task * most + s - all.first) * call.part_size(), state);
    }
  });
}

void append_and_attend(CpuContext& context, const ops::Attention& op) {
  const int64_t n = op.rows();
  if (n == 0) return;
  const KvView& kv = op.sequences.front().kv;
  append_to_cache(context.kernels, op.k, kv.k_pages, kv);
  if (!op.v.is_null()) append_to_cache(context.kernels, op.v, kv.v_pages, kv);
  const PooledKeys& pooled = op.options.pooled;
  if (!pooled.is_null()) {
    (void)append_index_keys(context.kernels, pooled.keys, pooled.sequences.front().kv,
                            {.unit = pooled.unit, .recent = 1, .whole = true},
                            context.spaces.of<AttentionSpaces>().pools);
  }
  const KeySelection& selected = op.options.selected;
  if (selected.is_null()) return attend(context, op, kv);
  const auto attend_rows = [&](int64_t row, int64_t rows, const KeySelection& own) {
    if (rows == 0) return;
    ops::Attention part = op;
    part.out = op.out.slice(0, row, rows);
    part.q = op.q.slice(0, row, rows);
    part.options.selected = own;
    KvView seen = kv;
    seen.length += row;
    attend(context, part, seen);
  };
  const int64_t dense = selected.dense_rows(n, kv.length);
  attend_rows(0, dense, {});
  attend_rows(dense, n - dense, selected.slice(dense, n - dense));
}

}  // namespace

void run(CpuContext& context, const ops::Attention& op) {
  for_each_part(op, [&](const ops::Attention& one) { append_and_attend(context, one); });
}

}  // namespace moeflux::cpu
