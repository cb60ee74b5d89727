#include "model/blocks/draft_head.h"

#include <algorithm>
#include <string>

#include "base/format.h"
#include "model/blocks/early_router.h"
#include "model/repeated.h"

namespace moeflux::blocks {
namespace {

/// Calls visit(rows of x, rows of a page) for pieces that lie in one page.
template <typename Visit>
void for_each_piece(StepBatch& batch, LayerId layer, size_t tensor, const Tensor& x,
                    const Visit& visit) {
  int64_t row = 0;
  for (const KvRows& sequence : batch.key_values(layer, tensor, tensor)) {
    const KvView& kept = sequence.kv;
    for (int64_t done = 0; done < sequence.rows;) {
      const int64_t position = kept.length + done;
      const int64_t first = position % kept.page_tokens;
      const int64_t rows = std::min(kept.page_tokens - first, sequence.rows - done);
      const auto page = static_cast<size_t>(position / kept.page_tokens) % kept.k_pages.size();
      visit(x.slice(0, row, rows), kept.k_pages[page].slice(0, first, rows));
      done += rows;
      row += rows;
    }
  }
}

}  // namespace

DraftHead take_draft_head(WeightStore& weights, LayerId layer, const ModelSpec& spec,
                          float norm_add) {
  const std::string p = formatted("layers.{}.", index(layer));
  const int64_t h = spec.hidden_size;
  DraftHead head;
  head.embedding_norm = weights.vector(p + "enorm.weight", {h}, norm_add);
  head.hidden_norm = weights.vector(p + "hnorm.weight", {h}, norm_add);
  if (spec.streams.count == 1) {
    head.combine = weights.matrix(p + "eh_proj", h, 2 * h);
  } else {
    head.of_embedding = weights.matrix(p + "e_proj", h, h);
    head.of_hidden = weights.matrix(p + "h_proj", h, h);
  }
  head.final_norm = weights.vector(p + "shared_head.norm.weight", {h}, norm_add);
  return head;
}

void combine_draft(Encoder& e, const ModelSpec& spec, const DraftHead& head, Tensor out,
                   Tensor embedded, Tensor hidden) {
  const int64_t h = spec.hidden_size;
  ScratchScope scope(e);
  const Tensor pair = e.scratch({out.dim(0), 2 * h}, DType::kF32);
  residual_norm(e, spec, embedded, embedded, {head.embedding_norm});
  residual_norm(e, spec, hidden, hidden, {head.hidden_norm});
  e.run(ops::Copy{pair.slice(1, 0, h), embedded});
  e.run(ops::Copy{pair.slice(1, h, h), hidden});
  e.run(ops::Linear{out, pair, head.combine});
}

void combine_draft_streams(Encoder& e, const ModelSpec& spec, const DraftHead& head, Tensor out,
                           Tensor embedded, Tensor hidden) {
  const int64_t n = out.dim(0);
  const int64_t h = spec.hidden_size;
  ScratchScope scope(e);
  const Tensor own = e.scratch({n, h}, DType::kF32);
  const Tensor streams = e.scratch({n * spec.streams.count, h}, DType::kF32);
  const Tensor normed = hidden.reshape(streams.shape);
  residual_norm(e, spec, embedded, embedded, {head.embedding_norm});
  residual_norm(e, spec, normed, normed, {head.hidden_norm});
  e.run(ops::Linear{own, embedded, head.of_embedding});
  e.run(ops::Linear{streams, normed, head.of_hidden});
  e.run(ops::Copy{out.split_last(h), repeated_rows(own, spec.streams.count)});
  e.run(ops::Add{out, out, streams.reshape(out.shape)});
}

void store_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor x) {
  for_each_piece(batch, layer, tensor, x, [&](const Tensor& rows, const Tensor& kept) {
    e.run(ops::Copy{kept, rows});
  });
}

void load_rows(Encoder& e, StepBatch& batch, LayerId layer, size_t tensor, Tensor out) {
  for_each_piece(batch, layer, tensor, out, [&](const Tensor& rows, const Tensor& kept) {
    e.run(ops::Copy{rows, kept});
  });
}

}  // namespace moeflux::blocks
