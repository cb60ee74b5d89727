#include "model/blocks/draft_head.h"

#include <string>

#include "base/format.h"
#include "model/blocks/early_router.h"
#include "model/repeated.h"

namespace moeflux::blocks {
namespace {

/// Numbers of a token's state that are normed together: of all streams, or of one.
int64_t normed_width(const ModelSpec& spec) {
  return spec.streams.gate_rank > 0 ? spec.draft_width() : spec.hidden_size;
}

}  // namespace

DraftHead take_draft_head(WeightStore& weights, LayerId layer, const ModelSpec& spec,
                          float norm_add) {
  const std::string p = formatted("layers.{}.", index(layer));
  const int64_t h = spec.hidden_size;
  DraftHead head;
  head.embedding_norm = weights.vector(p + "enorm.weight", {h}, norm_add);
  head.hidden_norm = weights.vector(p + "hnorm.weight", {normed_width(spec)}, norm_add);
  if (spec.streams.count == 1 || weights.has(p + "eh_proj.weight")) {
    head.combine = weights.matrix(p + "eh_proj", h, 2 * h);
  } else {
    head.of_embedding = weights.matrix(p + "e_proj", h, h);
    head.of_hidden = weights.matrix(p + "h_proj", h, h);
  }
  // Gated streams are normed as they are read.
  if (spec.streams.gate_rank == 0) {
    head.final_norm = weights.vector(p + "shared_head.norm.weight", {h}, norm_add);
  }
  return head;
}

void combine_draft(Encoder& e, const ModelSpec& spec, const DraftHead& head, Tensor out,
                   Tensor embedded, Tensor hidden) {
  const int64_t n = embedded.dim(0);
  const int64_t h = spec.hidden_size;
  ScratchScope scope(e);
  const int64_t width = normed_width(spec);
  const Tensor parts = hidden.reshape({n * spec.draft_width() / width, width});
  residual_norm(e, spec, embedded, embedded, {head.embedding_norm});
  residual_norm(e, spec, parts, parts, {head.hidden_norm});
  const int64_t streams = spec.streams.count;
  const Shape stream_rows{n * streams, h};
  if (head.combine.rows > 0) {
    const Tensor pairs = e.scratch({n, streams, 2 * h}, DType::kF32);
    e.run(ops::Copy{pairs.slice(2, 0, h), repeated_rows(embedded, streams)});
    e.run(ops::Copy{pairs.slice(2, h, h), hidden.reshape({n, streams, h})});
    e.run(ops::Linear{out.reshape(stream_rows), pairs.reshape({n * streams, 2 * h}), head.combine});
    return;
  }
  const Tensor own = e.scratch({n, h}, DType::kF32);
  const Tensor states = e.scratch(stream_rows, DType::kF32);
  e.run(ops::Linear{own, embedded, head.of_embedding});
  e.run(ops::Linear{states, hidden.reshape(stream_rows), head.of_hidden});
  e.run(ops::Copy{out.split_last(h), repeated_rows(own, streams)});
  e.run(ops::Add{out, out, states.reshape(out.shape)});
}

}  // namespace moeflux::blocks
