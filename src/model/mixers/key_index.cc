#include "model/mixers/key_index.h"

#include <algorithm>
#include <vector>

#include "model/model.h"
#include "model/token_rows.h"
#include "model/weights/weight_store.h"

namespace moeflux {
// A score decides whether a key is seen at all, so its keys keep 16 bits where others have 8.
void KeyIndexSpec::add_state(const CacheTypes& types, std::vector<StateTensor>& tensors) const {
  const DType type = types.keys == DType::kI8 ? DType::kF16 : types.keys;
  if (!pooled) return tensors.push_back(cached_heads(1, head_dim, type));
  // A key lies in the rows of its tokens. Behind keys, what those of the pool that is not whole yet
  // are made of: keys of its tokens and, where there are any, their gates.
  tensors.push_back(cached_heads(1, head_dim / unit, type));
  if (keeps_tokens) return tensors.push_back({.shape = {head_dim}, .window = unit});
  tensors.push_back(
      {.extent = StateExtent::kFixed, .shape = {unit - 1, (means ? 1 : 2) * head_dim}});
}

KeyIndexWeights take_weighted_index(WeightStore& weights, const KeyIndexSpec& spec,
                                    const MixerPlace& place, int64_t query_width) {
  const std::string p = place.layer + "self_attn.indexer.";
  KeyIndexWeights w;
  w.q = weights.matrix(p + "wq_b", spec.num_heads * spec.head_dim, query_width);
  w.k = weights.matrix(p + "wk", spec.head_dim, place.hidden_size);
  w.head_weights = weights.router(p + "weights_proj", spec.num_heads, place.hidden_size);
  w.k_norm = weights.vector(p + "k_norm.weight", {spec.head_dim});
  w.k_bias = weights.vector(p + "k_norm.bias", {spec.head_dim});
  w.eps = spec.norm_eps;
  if (spec.logarithmic) {
    w.input_norm = weights.vector(p + "q_input_norm.weight", {query_width});
    w.input_bias = weights.vector(p + "q_input_norm.bias", {query_width});
    w.growth = {weights.vector(p + "ssmax_scaling.s", {spec.num_heads}),
                weights.vector(p + "ssmax_scaling.b", {spec.num_heads})};
  }
  if (spec.rope.rotary_dim > 0) {
    w.inverse_frequencies = weights.constant(spec.rope.inverse_frequencies);
  }
  if (spec.pooled) {
    w.pool_gate =
        weights.float_matrix(p + "index_kpool_compress_gate", spec.head_dim, place.hidden_size);
    w.pool_bias = weights.vector(p + "index_kpool_compress_ape", {spec.unit, spec.head_dim});
  }
  return w;
}

KeyIndexWeights take_mean_index(WeightStore& weights, const KeyIndexSpec& spec,
                                const MixerPlace& place) {
  const std::string p = place.layer + "self_attn.indexer.";
  KeyIndexWeights w;
  const int64_t query_rows = spec.num_heads * spec.head_dim;
  if (weights.has(p + "k_proj.weight")) {  // GGUF files have them apart
    w.q = weights.matrix(p + "q_proj", query_rows, place.hidden_size);
    w.k = weights.matrix(p + "k_proj", spec.head_dim, place.hidden_size);
  } else {
    w.q = weights.matrix(p + "index_qk_proj", query_rows + spec.head_dim, place.hidden_size);
  }
  w.q_norm = weights.vector(p + "q_layernorm.weight", {spec.head_dim}, place.norm_add);
  w.k_norm = weights.vector(p + "k_layernorm.weight", {spec.head_dim}, place.norm_add);
  w.eps = place.rms_norm_eps;
  w.inverse_frequencies = weights.constant(spec.rope.inverse_frequencies);
  return w;
}

KeyIndexWeights take_normed_index(WeightStore& weights, const KeyIndexSpec& spec,
                                  const MixerPlace& place) {
  // As the publisher calls them, or as transformers saves them.
  const std::string saved = place.layer + "self_attn.indexer.";
  const std::string p =
      weights.has(saved + "q_proj.weight") ? saved : place.layer + "self_attn.index_";
  KeyIndexWeights w;
  w.q = weights.matrix(p + "q_proj", spec.num_heads * spec.head_dim, place.hidden_size);
  w.k = weights.matrix(p + "k_proj", spec.head_dim, place.hidden_size);
  w.q_norm = weights.vector(p + "q_norm.weight", {spec.head_dim}, place.norm_add);
  w.k_norm = weights.vector(p + "k_norm.weight", {spec.head_dim}, place.norm_add);
  w.eps = place.rms_norm_eps;
  w.inverse_frequencies = weights.constant(spec.rope.inverse_frequencies);
  return w;
}

namespace {

// Gives each token the key of its pool up to it.
Tensor pool_keys(const ForwardStep& step, LayerId layer, const KeyIndexSpec& spec,
                 const KeyIndexWeights& w, const KeyIndexInput& input, Tensor keys) {
  Encoder& e = step.encoder;
  const Tensor gate = e.scratch(keys.shape, DType::kF32);
  const Tensor pooled = e.scratch(keys.shape, DType::kF32);
  e.run(ops::Linear{gate, input.x, w.pool_gate});
  e.run(ops::PoolRows{pooled,
                      keys,
                      {gate, w.pool_bias},
                      step.positions,
                      step.batch.states(layer, input.tensor + 1),
                      spec.unit});
  return pooled;
}

// Tokens of a pool lie in one page, so a piece of it is the pool's state: that before the step's
// first rows, which end with a pool, and that of the last one. Pools between are stored as well.
void pool_kept_tokens(const ForwardStep& step, LayerId layer, size_t tensor, int64_t unit,
                      Tensor means, Tensor keys) {
  std::vector<StateRows> parts;
  const auto add = [&](const KvView& kept, int64_t last, int64_t rows) {
    const int64_t first = last % kept.page_tokens / unit * unit;
    const auto page = static_cast<size_t>(last / kept.page_tokens) % kept.k_pages.size();
    if (rows > 0) parts.push_back({rows, kept.k_pages[page].slice(0, first, unit - 1)});
  };
  for (const KvRows& sequence : step.batch.key_values(layer, tensor, tensor)) {
    const int64_t begin = sequence.kv.length;
    const int64_t rows = std::min(sequence.rows, unit - begin % unit);
    add(sequence.kv, begin, rows);
    add(sequence.kv, begin + sequence.rows - 1, sequence.rows - rows);
  }
  step.encoder.run(ops::PoolRows{means, keys, {}, step.positions, parts, unit});
  store_rows(step.encoder, step.batch, layer, tensor, keys);
}

struct Judged {
  Tensor queries;  // [n, num_heads, head_dim]
  Tensor keys;     // [n, 1, head_dim]
  Tensor weights;  // of heads, or null
};

Judged judge_by_means(const ForwardStep& step, LayerId layer, const KeyIndexSpec& spec,
                      const KeyIndexWeights& w, const KeyIndexInput& input) {
  Encoder& e = step.encoder;
  const int64_t n = input.x.dim(0);
  const Tensor both = e.scratch({n, w.q.rows}, DType::kF32);
  const Tensor raw = e.scratch({n, spec.head_dim}, DType::kF32);
  const Tensor means = e.scratch({n, spec.head_dim}, DType::kF32);
  e.run(ops::Linear{both, input.x, w.q});
  const Tensor heads = both.split_last(spec.head_dim);
  const Tensor queries = heads.slice(1, 0, spec.num_heads);
  const Tensor keys = means.split_last(spec.head_dim);
  if (w.k.rows > 0) {
    e.run(ops::Linear{raw, input.x, w.k});
  } else {
    e.run(ops::Copy{raw.split_last(spec.head_dim), heads.slice(1, spec.num_heads, 1)});
  }
  if (spec.keeps_tokens) {
    pool_kept_tokens(step, layer, input.tensor + 1, spec.unit, means, raw);
  } else {
    e.run(ops::PoolRows{
        means, raw, {}, step.positions, step.batch.states(layer, input.tensor + 1), spec.unit});
  }
  e.run(ops::RmsNorm{queries, queries, w.q_norm, w.eps});
  e.run(ops::RmsNorm{keys, keys, w.k_norm, w.eps});
  RopeOptions at_first = spec.rope.options();
  at_first.unit = spec.unit;
  e.run(ops::Rope{queries, step.positions, w.inverse_frequencies, spec.rope.options()});
  e.run(ops::Rope{keys, step.positions, w.inverse_frequencies, at_first});
  return {queries, keys, {}};
}

Judged judge(const ForwardStep& step, LayerId layer, const KeyIndexSpec& spec,
             const KeyIndexWeights& w, const KeyIndexInput& input) {
  Encoder& e = step.encoder;
  const int64_t n = input.x.dim(0);
  const auto scratch = [&](int64_t cols) { return e.scratch({n, cols}, DType::kF32); };
  const Tensor q = scratch(spec.num_heads * spec.head_dim);
  Tensor k = scratch(spec.head_dim);
  const bool are_weighted = w.head_weights.rows > 0;
  const Tensor head_weights = are_weighted ? scratch(spec.num_heads) : Tensor{};
  Tensor from = input.queries_from;
  if (spec.logarithmic) {
    const Tensor normed = scratch(from.dim(1));
    e.run(ops::LayerNorm{normed, from, w.input_norm, w.eps});
    e.run(ops::AddBias{normed, w.input_bias});
    from = normed;
  }
  e.run(ops::Linear{q, from, w.q});
  e.run(ops::Linear{k, input.x, w.k});
  if (are_weighted) e.run(ops::Linear{head_weights, input.x, w.head_weights});
  const Tensor queries = q.split_last(spec.head_dim);
  if (!w.q_norm.is_null()) e.run(ops::RmsNorm{queries, queries, w.q_norm, w.eps});
  if (spec.logarithmic) scale_heads(e, queries, step.batch, w.growth);
  if (w.k_bias.is_null()) {
    const Tensor keys = k.split_last(spec.head_dim);
    e.run(ops::RmsNorm{keys, keys, w.k_norm, w.eps});
  } else {
    e.run(ops::LayerNorm{k, k, w.k_norm, w.eps});
    e.run(ops::AddBias{k, w.k_bias});
  }
  if (spec.pooled) k = pool_keys(step, layer, spec, w, input, k);
  const Tensor keys = k.split_last(spec.head_dim);
  if (spec.rope.rotary_dim > 0) {
    const auto turned = [&](const Tensor& heads) {
      const int64_t width = spec.rope.rotary_dim;
      return spec.turns_last ? heads.slice(2, spec.head_dim - width, width) : heads;
    };
    const RopeOptions options = spec.rope.options();
    e.run(ops::Rope{turned(queries), step.positions, w.inverse_frequencies, options});
    e.run(ops::Rope{turned(keys), step.positions, w.inverse_frequencies, options});
  }
  return {queries, keys, head_weights};
}

}  // namespace

// Factors that all scores of a token share are left out: they change no order.
void choose_keys(const ForwardStep& step, LayerId layer, const KeyIndexSpec& spec,
                 const KeyIndexWeights& w, const KeyIndexInput& input, Tensor ids) {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const Judged judged =
      spec.means ? judge_by_means(step, layer, spec, w, input) : judge(step, layer, spec, w, input);
  e.run(ops::SelectKeys{
      ids,
      judged.queries,
      judged.keys,
      judged.weights,
      step.batch.key_values(layer, input.tensor, input.tensor),
      {.unit = spec.unit, .recent = spec.recent, .whole = spec.pooled, .relu = spec.means}});
}

}  // namespace moeflux
