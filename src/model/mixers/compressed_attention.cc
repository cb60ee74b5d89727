#include "model/mixers/compressed_attention.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "backend/listed_keys.h"
#include "base/format.h"
#include "base/json.h"
#include "base/units.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

/// Tensors of a layer's state: keys of the window, then of entries, then what is not an entry yet,
/// where an entry has several tokens. The same two of an index follow; where it makes keys of
/// entries it keeps keys alone.
enum StateTensors : size_t { kWindow, kEntries, kPool };
size_t index_keys(int64_t unit) { return unit > 1 ? kPool + 1 : kPool; }

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
  CompressorWeights keys;  // of tokens
  Weight entry_keys;       // or of entries
  Tensor entry_key_norm;
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
  // A small difference may become another number by rounding.
  w.kv = s.rounds ? weights.router(p + "wkv", cols, hidden_size)
                  : weights.matrix(p + "wkv", cols, hidden_size);
  if (s.unit > 1) {
    w.gate = weights.router(p + "wgate", cols, hidden_size);
    w.bias = s.biased_gates
                 ? weights.vector(p + "ape", {s.unit, cols})
                 : weights.constant(std::vector<float>(static_cast<size_t>(s.unit * cols), 0.0f));
  }
  w.norm = weights.vector(p + "norm.weight", {width});
  return w;
}

IndexWeights take_index(WeightStore& weights, const std::string& p,
                        const CompressedAttentionSpec& s, int64_t hidden_size) {
  const EntryIndexSpec& index = *s.index;
  IndexWeights w;
  w.q = weights.matrix(p + "wq_b", index.num_heads * index.head_dim, s.q_lora_rank);
  w.head_weights = weights.router(p + "weights_proj", index.num_heads, hidden_size);
  if (!s.has_entries()) return w;
  if (index.keys_of_entries) {
    w.entry_keys = weights.router(p + "wk", index.head_dim, s.head_dim);
    w.entry_key_norm = weights.vector(p + "k_norm.weight", {index.head_dim});
  } else {
    w.keys = take_compressor(weights, p + "compressor.", s, index.head_dim, hidden_size);
  }
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
  if (s.has_entries()) w.entries = take_compressor(weights, p + "compressor.", s, s.head_dim, h);
  if (s.index) w.index = take_index(weights, p + "indexer.", s, h);
  return w;
}

SelectOptions outer_options(const EntryIndexSpec& index) {
  return {.unit = index.outer_tokens, .recent = 1};
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
  void round(const ForwardStep& step, const Tensor& x, BlockRounding to) const {
    if (spec_.rounds) step.encoder.run(ops::RoundBlocks{x, to});
  }
  LayerId keeper(LayerId layer) const {
    return spec_.entries_of < 0 ? layer : LayerId{spec_.entries_of};
  }
  /// The normed entry of each token so far, [n, 1, width], before it turns: one that is whole at
  /// the last token of it.
  void compress(const ForwardStep& step, LayerId layer, const Tensor& entries,
                const CompressorWeights& w, const CompressorInput& in, size_t pool) const;
  void make_entries(const ForwardStep& step, LayerId layer, const LentKeys& keys,
                    const CompressorInput& in) const;
  void make_index_keys(const ForwardStep& step, LayerId layer, const LentKeys& keys,
                       const CompressorInput& in) const;
  /// The entries that each token attends to, where it sees more than it may choose.
  void choose(const ForwardStep& step, LayerId layer, Tensor queries_from, const LentKeys& keys,
              const Products& from) const;
  /// Room for what this layer makes, and what it borrows: k are entries, v the keys of their index.
  LentKeys take_keys(const ForwardStep& step, LayerId layer, int64_t n) const;

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

void CompressedAttentionMixer::compress(const ForwardStep& step, LayerId layer,
                                        const Tensor& entries, const CompressorWeights& w,
                                        const CompressorInput& in, size_t pool) const {
  Encoder& e = step.encoder;
  const int64_t width = w.norm.num_elements();
  if (spec_.unit == 1) {
    return e.run(ops::RmsNorm{entries, in.values.split_last(width), w.norm, eps_});
  }
  e.run(ops::PoolRows{entries.reshape({entries.dim(0), width}),
                      in.values,
                      {.gate = in.gates, .bias = w.bias, .overlaps = spec_.overlaps},
                      step.positions,
                      step.batch.states(layer, pool),
                      spec_.unit});
  e.run(ops::RmsNorm{entries, entries, w.norm, eps_});
}

void CompressedAttentionMixer::make_index_keys(const ForwardStep& step, LayerId layer,
                                               const LentKeys& keys,
                                               const CompressorInput& in) const {
  const IndexWeights& w = weights_.index;
  if (spec_.index->keys_of_entries) {
    const Tensor flat = keys.v.reshape({keys.v.dim(0), keys.v.dim(2)});
    step.encoder.run(
        ops::Linear{flat, keys.k.reshape({keys.k.dim(0), spec_.head_dim}), w.entry_keys});
    step.encoder.run(ops::RmsNorm{keys.v, keys.v, w.entry_key_norm, eps_});
  } else {
    compress(step, layer, keys.v, w.keys, in, index_keys(spec_.unit) + 1);
  }
  turn(step, keys.v, weights_.frequencies, spec_.unit);
  round(step, keys.v, BlockRounding::kE2m1);
}

void CompressedAttentionMixer::make_entries(const ForwardStep& step, LayerId layer,
                                            const LentKeys& keys, const CompressorInput& in) const {
  compress(step, layer, keys.k, weights_.entries, in, kPool);
  // Index keys are made before entries turn.
  if (spec_.index && spec_.index->keys_of_entries) make_index_keys(step, layer, keys, {});
  turn(step, keys.k, weights_.frequencies, spec_.unit);
  round(step, keys.k, BlockRounding::kE2m1E4m3);
}

// Factors that all scores of a token share are left out: they change no order.
void CompressedAttentionMixer::choose(const ForwardStep& step, LayerId layer, Tensor queries_from,
                                      const LentKeys& keys, const Products& from) const {
  Encoder& e = step.encoder;
  const EntryIndexSpec& index = *spec_.index;
  const IndexWeights& w = weights_.index;
  const int64_t n = queries_from.dim(0);
  ScratchScope scope(e);
  const Tensor q = e.scratch({n, w.q.rows}, DType::kF32);
  e.run(ops::Linear{q, queries_from, w.q});
  const Tensor queries = q.split_last(index.head_dim);
  turn(step, queries, weights_.frequencies);
  round(step, queries, BlockRounding::kE2m1);
  if (spec_.has_entries() && !index.keys_of_entries) {
    make_index_keys(step, layer, keys, from.index);
  }
  const size_t at = index_keys(spec_.unit);
  const std::span<const KvRows> rows = step.batch.key_values(keeper(layer), at, at);
  if (index.outer_selected > 0) {
    e.run(ops::SelectKeys{keys.within.ids, queries, keys.v, from.head_weights, rows,
                          outer_options(index)});
  }
  const KeySelection within =
      index.within < 0 ? KeySelection{} : step.lent[static_cast<size_t>(index.within)].within;
  e.run(ops::SelectKeys{keys.ids,
                        queries,
                        keys.v,
                        from.head_weights,
                        rows,
                        {.unit = spec_.unit, .recent = 0, .whole = true},
                        within});
}

LentKeys CompressedAttentionMixer::take_keys(const ForwardStep& step, LayerId layer,
                                             int64_t n) const {
  const CompressedAttentionSpec& s = spec_;
  Encoder& e = step.encoder;
  LentKeys keys;
  if (s.unit == 0) return keys;
  if (s.entries_of >= 0) {
    const LentKeys& lent = step.lent[static_cast<size_t>(s.entries_of)];
    keys.k = lent.k;
    keys.v = lent.v;
  } else {
    keys.k = e.scratch({n, 1, s.head_dim}, DType::kF32);
    if (s.index) keys.v = e.scratch({n, 1, s.index->head_dim}, DType::kF32);
  }
  if (s.chosen_by >= 0) keys.ids = step.lent[static_cast<size_t>(s.chosen_by)].ids;
  if (s.index) {
    keys.ids = e.scratch({n, 1, s.index->selected}, DType::kI32);
    if (s.index->outer_selected > 0) {
      keys.within = outer_options(*s.index).selection(
          e.scratch({n, 1, s.index->outer_selected}, DType::kI32));
    }
  }
  if (s.lends()) step.lent[static_cast<size_t>(moeflux::index(layer))] = keys;
  return keys;
}

void CompressedAttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out,
                                       Tensor x) const {
  const CompressedAttentionSpec& s = spec_;
  const CompressedAttentionWeights& w = weights_;
  Encoder& e = step.encoder;
  const int64_t n = x.dim(0);
  std::optional<ScratchScope> scope;
  if (!s.lends()) scope.emplace(e);
  const LentKeys made = take_keys(step, layer, n);  // of a lender: outlives the layer
  if (s.lends()) scope.emplace(e);
  const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };
  const Products from = multiply(e, x);
  const Tensor normed = scratch({n, s.q_lora_rank});  // apart, so that products may make it
  e.run(ops::RmsNorm{normed, from.low_rank, w.q_norm, eps_});
  const Tensor q = scratch({n, s.num_heads * s.head_dim}).split_last(s.head_dim);
  e.run(ops::Linear{q.reshape({n, s.num_heads * s.head_dim}), normed, w.q_b});
  PooledKeys pooled;
  std::vector<KvRows> entries;
  if (s.unit > 0) {
    const bool index_first = s.index && !s.index->keys_of_entries;
    if (index_first) choose(step, layer, normed, made, from);
    if (s.has_entries()) make_entries(step, layer, made, from.entries);
    if (s.index && !index_first) choose(step, layer, normed, made, from);
    pooled.ids = made.ids;
    pooled.keys = made.k;
    pooled.unit = s.unit;
    const std::span<const KvRows> rows = step.batch.key_values(keeper(layer), kEntries, kEntries);
    entries.assign(rows.begin(), rows.end());
    pooled.sequences = entries;
  }
  const Tensor keys = from.latent.split_last(s.head_dim);
  e.run(ops::RmsNorm{keys, keys, w.kv_norm, eps_});
  if (s.norms_queries) e.run(ops::RmsNorm{q, q, Tensor{}, eps_});
  turn(step, q, w.frequencies);
  turn(step, keys, w.frequencies);
  round(step, keys, BlockRounding::kE4m3);
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
  const auto add = [&](int64_t width, bool is_pooled) {
    layer.tensors.push_back(cached_heads(1, width / unit, types.keys));
    const int64_t rows = overlaps ? 2 * unit : unit - 1;
    if (!is_pooled) return;
    layer.tensors.push_back(
        {.extent = StateExtent::kFixed, .shape = {rows, 2 * pooled_width(width)}});
  };
  if (!has_entries()) return layer;
  add(head_dim, unit > 1);
  if (!index) return layer;
  layer.tensors[kEntries].tokens_read = index->selected * unit;
  add(index->head_dim, unit > 1 && !index->keys_of_entries);
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
  if (unit == 0) return 0;  // a window is read where it lies
  const int64_t all = tokens / unit;
  const int64_t entries = selected() > 0 ? std::min(all, selected()) : all;
  const uint64_t keys =
      listed_page_tokens(static_cast<uint64_t>(entries + std::min(tokens, window)));
  return keys * static_cast<uint64_t>(head_dim) * static_cast<uint64_t>(dtype_bits(types.keys)) / 8;
}

std::unique_ptr<Mixer> CompressedAttentionSpec::take(WeightStore& weights,
                                                     const MixerPlace& place) const {
  return std::make_unique<CompressedAttentionMixer>(*this, weights, place);
}

Json CompressedAttentionSpec::config_value(std::string_view key) const {
  if (key == "layer_type") {
    if (unit == 0) return "sliding_attention";
    return selected() > 0 ? "compressed_sparse_attention" : "heavily_compressed_attention";
  }
  if (key == "attention_multiplier") return scale;
  if (key == "rotary_dim") return rope.rotary_dim;
  return nullptr;
}

}  // namespace moeflux
