// Attention over a paged cache: cuts it into tiles of tokens and heads, and long contexts of few
// tokens into segments as well.
#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_encoder.h"
#include "backend/cpu/kernel_args.h"
#include "backend/sequence_rows.h"
#include "quant/q8_rows.h"

namespace moeflux::cpu {
namespace {

/// Where each page begins; all have the strides of the first.
const uint8_t** page_pointers(std::span<const Tensor> pages, std::vector<const uint8_t*>& storage) {
  const uint8_t** pointers = workspace(storage, static_cast<int64_t>(pages.size()));
  for (size_t p = 0; p < pages.size(); ++p) {
    MF_CHECK(pages[p].strides == pages[0].strides && pages[p].dtype == pages[0].dtype);
    pointers[p] = bytes_of(pages[p]);
  }
  return pointers;
}

int64_t element_bytes(const Tensor& page) { return dtype_bits(page.dtype) / 8; }

CachedType cached_type(const Tensor& page) {
  if (page.dtype == DType::kI8) return CachedType::kQ8;
  if (page.dtype == DType::kF16) return CachedType::kF16;
  MF_CHECK(page.dtype == DType::kF32);
  return CachedType::kF32;
}

void append_to_cache(const KernelTable& kernels, const Tensor& x, std::span<const Tensor> pages,
                     const KvView& kv) {
  const RowsView rows(x);
  const int64_t heads = x.dim(1);
  const CachedType type = cached_type(pages.front());
  MF_CHECK(type != CachedType::kQ8 || pages.front().dim(2) == q8_rows::row_bytes(rows.cols));
  for (int64_t t = 0; t < x.dim(0); ++t) {
    const int64_t position = kv.length + t;
    const Tensor& page = pages[static_cast<size_t>(position / kv.page_tokens) % pages.size()];
    std::byte* to = host_ptr<std::byte>(page) +
                    position % kv.page_tokens * page.strides[0] * element_bytes(page);
    for (int64_t h = 0; h < heads; ++h) {
      std::byte* head = to + h * page.strides[1] * element_bytes(page);
      const float* row = rows.row(t * heads + h);
      if (type == CachedType::kF16) {
        kernels.to_f16(reinterpret_cast<uint8_t*>(head), row, rows.cols);
      } else if (type == CachedType::kQ8) {
        kernels.to_q8(reinterpret_cast<uint8_t*>(head), row, rows.cols);
      } else {
        std::memcpy(head, row, static_cast<size_t>(rows.cols) * sizeof(float));
      }
    }
  }
}

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

  Tiling(int64_t n, int64_t heads, int64_t kv_heads) : group(heads / kv_heads) {
    const int64_t parts = (group + kAttentionRowsMax - 1) / kAttentionRowsMax;
    heads_per_tile = (group + parts - 1) / parts;
    tokens_per_tile = std::min(n, kAttentionRowsMax / heads_per_tile);
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

/// Tiles of later tokens, which see more, come first: threads finish together.
Tile tile_at(const Tiling& cut, int64_t n, int64_t index) {
  const int64_t parts_per_kv_head = (cut.group + cut.heads_per_tile - 1) / cut.heads_per_tile;
  const int64_t side = index % cut.head_parts;
  const int64_t kv_head = side / parts_per_kv_head;
  const int64_t first = side % parts_per_kv_head * cut.heads_per_tile;
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

/// One call of the op, in the terms of the kernels.
class Attention {
 public:
  Attention(const KernelTable& kernels, const Tiling& cut, Tensor out, Tensor q, const KvView& kv,
            const AttentionOptions& options, const uint8_t* const* k_pages,
            const uint8_t* const* v_pages)
      : cut_(cut),
        kernels_(kernels),
        kv_(kv),
        q_(q),
        out_(out),
        queries_(q),
        outs_(out),
        rows_((cut.tokens_per_tile * cut.heads_per_tile + 15) / 16 * 16),
        sinks_(floats_or_null(options.sinks)) {
    shared_.q_token_stride = q.strides[0];
    shared_.q_stride = q.strides[1];
    shared_.window = options.window;
    shared_.k_pages = k_pages;
    shared_.v_pages = v_pages;
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
    const int64_t seen = shared_.window > 0 ? std::min(shared_.window, stored()) : stored();
    return q_.dim(0) * q_.dim(1) * seen * (q_.dim(2) + out_.dim(2));
  }
  Tile tile(int64_t index) const { return tile_at(cut_, q_.dim(0), index); }
  /// Positions that one of the tokens sees.
  Segments segments(int64_t token, int64_t tokens) const {
    const int64_t oldest = kv_.length + token + 1 - shared_.window;
    const int64_t begin = shared_.window > 0 ? std::max<int64_t>(0, oldest) : 0;
    return {begin / kAttentionSegment, (kv_.length + token + tokens - 1) / kAttentionSegment + 1};
  }
  Segments segments(const Tile& tile) const { return segments(tile.token, tile.tokens); }

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
  AttentionArgs shared_{};
};

}  // namespace

void CpuEncoder::attention(Tensor out, Tensor q, Tensor k, Tensor v,
                           std::span<const KvRows> sequences, const AttentionOptions& options) {
  flush();
  for_each_sequence(sequences, q.dim(0), [&](const KvRows& s, const auto& part) {
    attend(part(out), part(q), part(k), part(v), s.kv, options);
  });
}

void CpuEncoder::attend(const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                        const KvView& kv, const AttentionOptions& options) {
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
  const Tiling cut(n, heads, kv_heads);
  const Attention op(kernels_, cut, out, q, kv, options, page_pointers(kv.k_pages, k_pages_),
                     page_pointers(kv.v_pages, v_pages_));
  const int64_t part = op.panel_size() + op.state_size();  // where a slot's part begins
  const int64_t slot_size = part + op.part_size();
  float* slots = aligned_workspace(floats_, slot_count() * slot_size);
  const int64_t most = op.segments(0, n).count();
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
