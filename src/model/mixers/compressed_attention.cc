#include "model/mixers/compressed_attention.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

/// Tensors of a layer's state: keys of the window, then of entries, then what is not an entry yet;
/// the same two of an index.
enum StateTensors : size_t { kWindow, kEntries, kPool, kIndexKeys, kIndexPool };

/// Weights that make entries, or keys of an index, of tokens.
struct CompressorWeights {
  Weight kv;
  Weight gate;
  Tensor bias;  // of gates, by a token's place
  Tensor norm;
};

struct IndexWeights {
  Weight q;
  Weight head_weights;
  CompressorWeights keys;
};

struct CompressedAttentionWeights {
  Weight q_a;
  Tensor q_norm;
  Weight q_b;
  Weight kv;
  Tensor kv_norm;
  Weight o_a;  // the rows of each group
  Weight o_b;
  Tensor sinks;
  Tensor frequencies;
  Tensor backward;  // the frequencies that undo them
  CompressorWeights entries;
  IndexWeights index;
};

/// Values and gates that a compressor makes of x.
struct CompressorInput {
  Tensor values;
  Tensor gates;
};

/// Products of a layer's matrices with x, f32 [n, rows of each]; null where it has none.
struct Products {
  Tensor low_rank;  // of the queries
  Tensor latent;    // keys and values
  CompressorInput entries;
  CompressorInput index;
  Tensor head_weights;  // of the index
};

CompressorWeights take_compressor(WeightStore& weights, const std::string& p,
                                  const CompressedAttentionSpec& s, int64_t width,
                                  int64_t hidden_size) {
  const int64_t cols = s.pooled_width(width);
  CompressorWeights w;
  w.kv = weights.matrix(p + "wkv", cols, hidden_size);
  w.gate = weights.router(p + "wgate", cols, hidden_size);
  w.bias = weights.vector(p + "ape", {s.unit, cols});
  w.norm = weights.vector(p + "norm.weight", {width});
  return w;
}

CompressedAttentionWeights take_weights(WeightStore& weights, const CompressedAttentionSpec& s,
                                        const MixerPlace& place) {
  const std::string p = place.layer + "attn.";
  const int64_t h = place.hidden_size;
  const int64_t heads_width = s.num_heads * s.head_dim;
  const int64_t out_width = s.out_groups * s.out_lora_rank;
  CompressedAttentionWeights w;
  w.q_a = weights.matrix(p + "wq_a", s.q_lora_rank, h);
  w.q_norm = weights.vector(p + "q_norm.weight", {s.q_lora_rank});
  w.q_b = weights.matrix(p + "wq_b", heads_width, s.q_lora_rank);
  w.kv = weights.matrix(p + "wkv", s.head_dim, h);
  w.kv_norm = weights.vector(p + "kv_norm.weight", {s.head_dim});
  w.o_a = weights.per_head_matrix(p + "wo_a", out_width, heads_width / s.out_groups);
  w.o_b = weights.matrix(p + "wo_b", h, out_width);
  w.sinks = weights.vector(p + "attn_sink", {s.num_heads});
  w.frequencies = weights.constant(s.rope.inverse_frequencies);
  std::vector<float> backward;
  for (const float frequency : s.rope.inverse_frequencies) backward.push_back(-frequency);
  w.backward = weights.constant(backward);
  if (s.unit == 0) return w;
  w.entries = take_compressor(weights, p + "compressor.", s, s.head_dim, h);
  if (!s.index) return w;
  const std::string index = p + "indexer.";
  w.index.q = weights.matrix(index + "wq_b", s.index->num_heads * s.index->head_dim, s.q_lora_rank);
  w.index.head_weights = weights.router(index + "weights_proj", s.index->num_heads, h);
  w.index.keys = take_compressor(weights, index + "compressor.", s, s.index->head_dim, h);
  return w;
}

class CompressedAttentionMixer : public Mixer {
 public:
  CompressedAttentionMixer(const CompressedAttentionSpec& spec, WeightStore& weights,
                           const MixerPlace& place)
      : spec_(spec), weights_(take_weights(weights, spec, place)), eps_(place.rms_norm_eps) {}

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  /// Turns the last columns of x [n, heads, width].
  void turn(const ForwardStep& step, const Tensor& x, const Tensor& frequencies,
            int64_t unit = 1) const {
    RopeOptions options = spec_.rope.options();
    options.unit = unit;
    const int64_t turned = options.rotary_dim;
    step.encoder.run(
        ops::Rope{x.slice(2, x.dim(2) - turned, turned), step.positions, frequencies, options});
  }
  /// All products of x, one kind of weights after the other: neighbours may share a launch.
  Products multiply(Encoder& e, Tensor x) const;
  /// The entry of each token so far, [n, 1, width]: one that is whole at the last token of it.
  Tensor compress(const ForwardStep& step, LayerId layer, const CompressorWeights& w,
                  const CompressorInput& in, size_t pool) const;
  /// The entries that each token attends to, where it sees more than it may choose.
  Tensor choose(const ForwardStep& step, LayerId layer, Tensor queries_from,
                const Products& from) const;

  const CompressedAttentionSpec spec_;
  const CompressedAttentionWeights weights_;
  const float eps_;
};

Products CompressedAttentionMixer::multiply(Encoder& e, Tensor x) const {
  const CompressedAttentionWeights& w = weights_;
  const auto room = [&](const Weight& weight) {
    return weight.rows == 0 ? Tensor{} : e.scratch({x.dim(0), weight.rows}, DType::kF32);
  };
  const auto room_of = [&](const CompressorWeights& c) {
    return CompressorInput{room(c.kv), room(c.gate)};
  };
  const Products out{room(w.q_a), room(w.kv), room_of(w.entries), room_of(w.index.keys),
                     room(w.index.head_weights)};
  const auto linear = [&](const Tensor& to, const Weight& weight) {
    if (!to.is_null()) e.run(ops::Linear{to, x, weight});
  };
  linear(out.low_rank, w.q_a);
  linear(out.latent, w.kv);
  linear(out.entries.values, w.entries.kv);
  linear(out.index.values, w.index.keys.kv);
  linear(out.entries.gates, w.entries.gate);
  linear(out.index.gates, w.index.keys.gate);
  linear(out.head_weights, w.index.head_weights);
  return out;
}

Tensor CompressedAttentionMixer::compress(const ForwardStep& step, LayerId layer,
                                          const CompressorWeights& w, const CompressorInput& in,
                                          size_t pool) const {
  Encoder& e = step.encoder;
  const int64_t width = w.norm.num_elements();
  const Tensor entries = e.scratch({in.values.dim(0), width}, DType::kF32);
  e.run(ops::PoolRows{entries,
                      in.values,
                      {.gate = in.gates, .bias = w.bias, .overlaps = spec_.overlaps},
                      step.positions,
                      step.batch.states(layer, pool),
                      spec_.unit});
  const Tensor heads = entries.split_last(width);
  e.run(ops::RmsNorm{heads, heads, w.norm, eps_});
  turn(step, heads, weights_.frequencies, spec_.unit);
  return heads;
}

// Factors that all scores of a token share are left out: they change no order.
Tensor CompressedAttentionMixer::choose(const ForwardStep& step, LayerId layer, Tensor queries_from,
                                        const Products& from) const {
  Encoder& e = step.encoder;
  const EntryIndexSpec& index = *spec_.index;
  const IndexWeights& w = weights_.index;
  const int64_t n = queries_from.dim(0);
  const Tensor ids = e.scratch({n, 1, index.selected}, DType::kI32);
  ScratchScope scope(e);
  const Tensor q = e.scratch({n, w.q.rows}, DType::kF32);
  e.run(ops::Linear{q, queries_from, w.q});
  const Tensor queries = q.split_last(index.head_dim);
  turn(step, queries, weights_.frequencies);
  const Tensor keys = compress(step, layer, w.keys, from.index, kIndexPool);
  e.run(ops::SelectKeys{ids,
                        queries,
                        keys,
                        from.head_weights,
                        step.batch.key_values(layer, kIndexKeys, kIndexKeys),
                        {.unit = spec_.unit, .recent = 0, .whole = true}});
  return ids;
}

void CompressedAttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out,
                                       Tensor x) const {
  const CompressedAttentionSpec& s = spec_;
  const CompressedAttentionWeights& w = weights_;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };
  const Products from = multiply(e, x);
  const Tensor normed = scratch({n, s.q_lora_rank});  // apart, so that products may make it
  e.run(ops::RmsNorm{normed, from.low_rank, w.q_norm, eps_});
  const Tensor q = scratch({n, s.num_heads * s.head_dim}).split_last(s.head_dim);
  e.run(ops::Linear{q.reshape({n, s.num_heads * s.head_dim}), normed, w.q_b});
  PooledKeys pooled;
  std::vector<KvRows> entries;
  if (s.unit > 0) {
    if (s.index) pooled.ids = choose(step, layer, normed, from);
    pooled.keys = compress(step, layer, w.entries, from.entries, kPool);
    pooled.unit = s.unit;
    const std::span<const KvRows> rows = step.batch.key_values(layer, kEntries, kEntries);
    entries.assign(rows.begin(), rows.end());
    pooled.sequences = entries;
  }
  const Tensor keys = from.latent.split_last(s.head_dim);
  e.run(ops::RmsNorm{keys, keys, w.kv_norm, eps_});
  e.run(ops::RmsNorm{q, q, Tensor{}, eps_});
  turn(step, q, w.frequencies);
  turn(step, keys, w.frequencies);
  const Tensor mixed = scratch({n, s.num_heads, s.head_dim});
  e.run(ops::Attention{mixed,
                       q,
                       keys,
                       Tensor{},
                       step.batch.key_values(layer, kWindow, kWindow),
                       {.scale = s.scale, .window = s.window, .sinks = w.sinks, .pooled = pooled}});
  // Values are keys, which have turned by their positions.
  turn(step, mixed, w.backward);
  const Tensor groups = scratch({n, s.out_groups, s.out_lora_rank});
  e.run(ops::HeadLinear{groups,
                        mixed.reshape({n, s.out_groups, w.o_a.cols}),
                        w.o_a,
                        {s.out_lora_rank, 0, s.out_lora_rank}});
  e.run(ops::Linear{out, groups.reshape({n, w.o_b.cols}), w.o_b});
}

}  // namespace

LayerStateSpec CompressedAttentionSpec::state(const CacheTypes& types) const {
  LayerStateSpec layer{{cached_heads(1, head_dim, types.keys)}};
  layer.tensors.front().window = window;
  // An entry lies in the rows of its tokens.
  const auto add = [&](int64_t width) {
    layer.tensors.push_back(cached_heads(1, width / unit, types.keys));
    const int64_t rows = overlaps ? 2 * unit : unit - 1;
    layer.tensors.push_back(
        {.extent = StateExtent::kFixed, .shape = {rows, 2 * pooled_width(width)}});
  };
  if (unit == 0) return layer;
  add(head_dim);
  if (!index) return layer;
  layer.tensors[kEntries].tokens_read = index->selected * unit;
  add(index->head_dim);
  return layer;
}

Status CompressedAttentionSpec::has_state(const CacheTypes& types) const {
  if (types.keys == DType::kI8) {
    return make_error(ErrorCode::kUnsupported,
                      "keys of compressed attention are f32 or f16, not q8_0");
  }
  return {};
}

uint64_t CompressedAttentionSpec::listed_bytes(int64_t tokens, const CacheTypes& types) const {
  if (unit == 0) return 0;           // a window is read where it lies
  constexpr uint64_t kTokens = 256;  // whole tiles of every kernel
  const int64_t all = tokens / unit;
  const int64_t entries = index ? std::min(all, index->selected) : all;
  const uint64_t keys =
      round_up(static_cast<uint64_t>(entries + std::min(tokens, window)), kTokens);
  return keys * static_cast<uint64_t>(head_dim) * static_cast<uint64_t>(dtype_bits(types.keys)) / 8;
}

std::unique_ptr<Mixer> CompressedAttentionSpec::take(WeightStore& weights,
                                                     const MixerPlace& place) const {
  return std::make_unique<CompressedAttentionMixer>(*this, weights, place);
}

Json CompressedAttentionSpec::config_value(std::string_view key) const {
  if (key == "layer_type") {
    if (unit == 0) return "sliding_attention";
    return index ? "compressed_sparse_attention" : "heavily_compressed_attention";
  }
  if (key == "attention_multiplier") return scale;
  if (key == "rotary_dim") return rope.rotary_dim;
  return nullptr;
}

}  // namespace moeflux
