#include "model/blocks/ngram_embedding.h"

#include <cmath>

#include "base/format.h"
#include "model/blocks/gated_streams.h"
#include "model/repeated.h"

namespace moeflux::blocks {
namespace {

// Under the root of a product that is not zero.
constexpr float kLeastProduct = 1e-6f;

const LayerSpec& layer_of(const ModelSpec& spec, LayerId layer) {
  return spec.layers[static_cast<size_t>(index(layer))];
}

NgramWeights take_engram(WeightStore& weights, LayerId layer, const ModelSpec& spec) {
  const NgramSpec& rows = layer_of(spec, layer).ngrams.rows;
  const std::string p = formatted("layers.{}.engram.", index(layer));
  const int64_t h = spec.hidden_size;
  const int64_t streams = spec.streams.count;
  weights.ngram_table(layer, p + "embed", p + "embed.", rows, spec.vocab_size);
  NgramWeights w;
  w.key = weights.matrix(p + "wkv", (streams + 1) * h, rows.embed_dim);
  w.key_norm = weights.vector(p + "k_weight", {streams, h});
  w.query_norm = weights.vector(p + "q_weight", {streams, h});
  return w;
}

/// The products of a step's rows: keys f32 [n, streams, hidden], a value f32 [n, hidden].
struct KeysAndValue {
  Tensor keys;
  Tensor values;
};

KeysAndValue multiply(Encoder& e, const NgramWeights& w, Tensor rows, int64_t streams, int64_t h) {
  const int64_t n = rows.dim(0);
  if (w.value.rows == 0) {
    const Tensor both = e.scratch({n, (streams + 1) * h}, DType::kF32);
    e.run(ops::Linear{both, rows, w.key});
    return {both.slice(1, 0, streams * h).split_last(h), both.slice(1, streams * h, h)};
  }
  const KeysAndValue made{e.scratch({n, streams, h}, DType::kF32), e.scratch({n, h}, DType::kF32)};
  e.run(ops::Linear{made.keys.reshape({n, streams * h}), rows, w.key});
  e.run(ops::Linear{made.values, rows, w.value});
  return made;
}

}  // namespace

NgramWeights take_ngram_embedding(WeightStore& weights, LayerId layer, const ModelSpec& spec,
                                  float norm_add) {
  const NgramEmbeddingSpec& own = layer_of(spec, layer).ngrams;
  if (own.is_none()) return {};
  if (own.conv_taps == 0) return take_engram(weights, layer, spec);
  const std::string p = formatted("layers.{}.ple.", index(layer));
  const int64_t h = spec.hidden_size;
  const int64_t streams = spec.streams.count;
  const auto norm = [&](const char* name) {
    return take_stream_norm(weights, p + name, spec, norm_add);
  };
  weights.ngram_table(layer, p + "ple_embedding.ngram_embedding", p + "ple_embedding.", own.rows,
                      spec.vocab_size);
  NgramWeights w;
  w.key = weights.matrix(p + "key_proj", streams * h, own.rows.embed_dim);
  w.value = weights.matrix(p + "value_proj", h, own.rows.embed_dim);
  w.key_norm = norm("norm_key");
  w.query_norm = norm("norm_query");
  w.conv_norm = norm("norm_conv");
  w.state = layer_of(spec, layer).mixer->state({}).tensors.size();  // behind the mixer's
  w.conv = weights.spread_taps(p + "conv1d.weight", streams * h, own.conv_taps, own.conv_step);
  return w;
}

Status add_ngram_embedding(const ForwardStep& step, LayerId layer, const ModelSpec& spec,
                           const NgramWeights& w, Tensor streams) {
  const LayerSpec& own = layer_of(spec, layer);
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = streams.dim(0);
  const int64_t count = spec.streams.count;
  const int64_t h = spec.hidden_size;
  const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };
  const auto flat = [&](const Tensor& x) { return x.reshape({n, count * h}); };
  const Tensor rows = scratch({n, own.ngrams.rows.embed_dim});
  const Tensor queries = scratch({n, count, h});
  const Tensor gates = scratch({n, count});
  if (step.rows != nullptr) MF_RETURN_IF_ERROR(step.rows->write_rows(layer, e, rows));
  const auto [made, values] = multiply(e, w, rows, count, h);
  const Tensor keys = made.is_contiguous() ? made : scratch({n, count, h});
  norm_streams(e, keys, made, w.key_norm, spec.rms_norm_eps);
  norm_streams(e, queries, streams, w.query_norm, spec.rms_norm_eps);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(h)));
  e.run(ops::RootDots{gates, keys, queries, {.scale = scale, .least = kLeastProduct}});
  // Keys and queries are done with.
  const Tensor gated = keys;
  const Tensor convolved = queries;
  e.run(ops::MulActivated{gated, repeated_rows(values, count), gates.split_last(1),
                          Activation::kSigmoid});
  if (own.ngrams.conv_taps == 0) {
    e.run(ops::Add{streams, streams, gated});
    return {};
  }
  const Tensor normed = scratch({n, count, h});
  norm_streams(e, normed, gated, w.conv_norm, spec.rms_norm_eps);
  e.run(ops::CausalConv{flat(convolved),
                        flat(normed),
                        w.conv,
                        {.activation = Activation::kSilu},
                        step.batch.states(layer, w.state)});
  e.run(ops::Add{streams, streams, gated});
  e.run(ops::Add{streams, streams, convolved});
  return {};
}

}  // namespace moeflux::blocks
