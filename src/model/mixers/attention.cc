#include "model/mixers/attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/mixers/query_scale.h"
#include "model/model.h"
#include "model/weights/weight_store.h"

namespace moeflux {
namespace {

struct AttentionWeights {
  Weight qkv;  // in place of the next three where they are one
  Tensor qkv_bias;
  Weight q;
  Weight k;
  Weight v;  // null when values are the keys
  Weight o;
  Weight gate;       // null when there is none beside q
  Tensor gate_bias;  // [heads], or null
  Tensor ones;       // beside it, of the gate's width
  Tensor q_bias;
  Tensor k_bias;
  Tensor v_bias;
  Tensor o_bias;
  Tensor q_norm;
  Tensor k_norm;
  Tensor sinks;
  Tensor inverse_frequencies;
  KeyIndexWeights index;
};

Tensor project(Encoder& e, Tensor x, const Weight& weight, Tensor bias) {
  const Tensor out = e.scratch({x.dim(0), weight.rows}, DType::kF32);
  e.run(ops::Linear{out, x, weight});
  if (!bias.is_null()) e.run(ops::AddBias{out, bias});
  return out;
}

AttentionWeights take_weights(WeightStore& weights, const AttentionSpec& s,
                              const MixerPlace& place) {
  const std::string p = place.layer + "self_attn.";
  const int64_t hidden_size = place.hidden_size;
  const int64_t q_rows = s.num_heads * s.head_dim;
  const int64_t k_rows = s.num_kv_heads * s.head_dim;
  const int64_t v_rows = s.num_kv_heads * s.v_head_dim;
  AttentionWeights w;
  if (s.keys_of >= 0) {
    w.q = weights.matrix(p + "q_proj", q_rows, hidden_size);
  } else if (weights.has(p + "qkv_proj.weight")) {
    MF_CHECK(!s.output_gate && !s.v_is_k);
    w.qkv = weights.matrix(p + "qkv_proj", q_rows + k_rows + v_rows, hidden_size);
    if (s.qkv_bias) w.qkv_bias = weights.vector(p + "qkv_proj.bias", {w.qkv.rows});
  } else {
    w.q = weights.matrix(p + "q_proj", s.output_gate ? 2 * q_rows : q_rows, hidden_size);
    w.k = weights.matrix(p + "k_proj", k_rows, hidden_size);
    if (!s.v_is_k) w.v = weights.matrix(p + "v_proj", v_rows, hidden_size);
  }
  w.o = weights.matrix(p + "o_proj", hidden_size, s.num_heads * s.v_head_dim);
  if (s.gate != HeadGate::kNone) {
    const int64_t width = s.gate == HeadGate::kPerHead ? 1 : s.v_head_dim;
    w.gate = weights.matrix(p + "g_proj", s.num_heads * width, hidden_size);
    if (s.gate_bias) {
      w.gate_bias = weights.vector(p + "gate_bias", {s.num_heads});
      w.ones = weights.constant(std::vector<float>(static_cast<size_t>(s.num_heads * width), 1.0f));
    }
  }
  if (s.qkv_bias && w.qkv.is_null()) {
    w.q_bias = weights.vector(p + "q_proj.bias", {w.q.rows});
    w.k_bias = weights.vector(p + "k_proj.bias", {k_rows});
    if (!s.v_is_k) w.v_bias = weights.vector(p + "v_proj.bias", {v_rows});
  }
  if (s.o_bias) w.o_bias = weights.vector(p + "o_proj.bias", {hidden_size});
  switch (s.qk_norm) {
    case QkNorm::kNone:
    case QkNorm::kPlain:
      break;
    case QkNorm::kPerHead:
      w.q_norm = weights.vector(p + "q_norm.weight", {s.head_dim}, place.norm_add);
      if (s.keys_of >= 0) break;
      w.k_norm = weights.vector(p + "k_norm.weight", {s.head_dim}, place.norm_add);
      break;
    case QkNorm::kWhole:
      w.q_norm = weights.vector(p + "q_norm.weight", {q_rows}, place.norm_add);
      w.k_norm = weights.vector(p + "k_norm.weight", {k_rows}, place.norm_add);
      break;
  }
  if (s.sinks) w.sinks = weights.vector(p + "sinks", {s.num_heads});
  if (s.rope.rotary_dim > 0) {
    w.inverse_frequencies = weights.constant(s.rope.inverse_frequencies);
  }
  if (s.index) {
    w.index = s.index->means ? take_mean_index(weights, *s.index, place)
                             : take_normed_index(weights, *s.index, place);
  }
  return w;
}

class AttentionMixer : public Mixer {
 public:
  AttentionMixer(const AttentionSpec& spec, WeightStore& weights, const MixerPlace& place)
      : spec_(spec),
        weights_(take_weights(weights, spec, place)),
        rms_norm_eps_(place.rms_norm_eps) {}

  void forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const override;

 private:
  bool has_keys() const { return spec_.keys_of < 0; }
  /// Norms and positions of heads, [n, heads, ...], queries and keys in turn: so devices have both
  /// in one launch.
  void make_heads(const ForwardStep& step, Tensor q, Tensor k, Tensor v) const;

  const AttentionSpec spec_;
  const AttentionWeights weights_;
  const float rms_norm_eps_;
};

struct Projections {
  Tensor q;
  Tensor k;
  Tensor v;
};

Projections project_all(Encoder& e, Tensor x, const AttentionSpec& s, const AttentionWeights& w) {
  if (!w.qkv.is_null()) {
    const Tensor all = project(e, x, w.qkv, w.qkv_bias);
    const int64_t q_rows = s.num_heads * s.head_dim;
    const int64_t k_rows = s.num_kv_heads * s.head_dim;
    return {all.slice(1, 0, q_rows), all.slice(1, q_rows, k_rows),
            all.slice(1, q_rows + k_rows, s.num_kv_heads * s.v_head_dim)};
  }
  Projections projected{project(e, x, w.q, w.q_bias), {}, {}};
  if (s.keys_of >= 0) return projected;
  projected.k = project(e, x, w.k, w.k_bias);
  if (s.v_is_k) {
    projected.v = e.scratch({x.dim(0), w.k.rows}, DType::kF32);
    e.run(ops::Copy{projected.v, projected.k});
  } else {
    projected.v = project(e, x, w.v, w.v_bias);
  }
  return projected;
}

void AttentionMixer::make_heads(const ForwardStep& step, Tensor q, Tensor k, Tensor v) const {
  const AttentionSpec& s = spec_;
  const AttentionWeights& w = weights_;
  Encoder& e = step.encoder;
  if (s.qk_norm == QkNorm::kPerHead) {
    e.run(ops::RmsNorm{q, q, w.q_norm, rms_norm_eps_});
    if (has_keys()) e.run(ops::RmsNorm{k, k, w.k_norm, rms_norm_eps_});
  }
  if (has_keys() && s.v_norm) e.run(ops::RmsNorm{v, v, Tensor{}, rms_norm_eps_});
  if (has_keys() && s.value_scale != 1.0f) e.run(ops::Scale{v, v, s.value_scale});
  if (s.rope.rotary_dim > 0) {
    const RopeOptions options = s.rope.options();
    e.run(ops::Rope{q, step.positions, w.inverse_frequencies, options});
    if (has_keys()) e.run(ops::Rope{k, step.positions, w.inverse_frequencies, options});
  }
  if (s.qk_norm == QkNorm::kPlain) {
    e.run(ops::RmsNorm{q, q, Tensor{}, rms_norm_eps_});
    if (has_keys()) e.run(ops::RmsNorm{k, k, Tensor{}, rms_norm_eps_});
  }
}

/// Leaves keys and values to layers that have none of their own.
void lend_keys(const ForwardStep& step, LayerId layer, Tensor k, Tensor v) {
  if (step.lent.empty()) return;
  const LentKeys& lent = step.lent[static_cast<size_t>(index(layer))];
  if (lent.k.is_null()) return;
  step.encoder.run(ops::Copy{lent.k, k});
  step.encoder.run(ops::Copy{lent.v, v});
}

// A head's number once for each number of its gate.
Tensor repeated_gate_bias(Encoder& e, const AttentionWeights& w) {
  if (w.gate_bias.is_null()) return {};
  const int64_t heads = w.gate_bias.num_elements();
  const Tensor repeated = e.scratch({w.gate.rows}, DType::kF32);
  const Shape by_head{heads, w.gate.rows / heads};
  e.run(ops::MulActivated{repeated.reshape(by_head), w.ones.reshape(by_head),
                          w.gate_bias.reshape({heads, 1}), Activation::kIdentity});
  return repeated;
}

void AttentionMixer::forward(const ForwardStep& step, LayerId layer, Tensor out, Tensor x) const {
  const AttentionSpec& s = spec_;
  const AttentionWeights& w = weights_;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = x.dim(0);
  KeySelection selected;
  if (s.index) {
    selected = s.index->selection(e.scratch(s.index->ids_shape(n), DType::kI32));
    choose_keys(step, layer, *s.index, w.index, {x, x, 2}, selected.ids);
  }
  auto [q, k, v] = project_all(e, x, s, w);
  Tensor gate;
  if (s.gate != HeadGate::kNone) {
    gate = project(e, x, w.gate, repeated_gate_bias(e, w)).split_last(w.gate.rows / s.num_heads);
  }
  if (s.qk_norm == QkNorm::kWhole) {
    e.run(ops::RmsNorm{q, q, w.q_norm, rms_norm_eps_});
    if (has_keys()) e.run(ops::RmsNorm{k, k, w.k_norm, rms_norm_eps_});
  }
  if (s.output_gate) {
    const Tensor per_head = q.split_last(2 * s.head_dim);  // [n, heads, query | gate]
    q = per_head.slice(2, 0, s.head_dim);
    gate = per_head.slice(2, s.head_dim, s.head_dim);
  } else {
    q = q.split_last(s.head_dim);
  }
  if (has_keys()) {
    k = k.split_last(s.head_dim);
    v = v.split_last(s.v_head_dim);
  }
  make_heads(step, q, k, v);
  if (has_keys()) {
    lend_keys(step, layer, k, v);
  } else {
    const LentKeys& lent = step.lent[static_cast<size_t>(s.keys_of)];
    k = lent.k;
    v = lent.v;
  }
  if (!s.query_scale.is_none()) {
    scale_queries(e, q.reshape({n, s.num_heads * s.head_dim}), step.batch, s.query_scale);
  }
  const Tensor mixed = e.scratch({n, s.num_heads, s.v_head_dim}, DType::kF32);
  // Lent keys are written once more, where the layer that lends them has written them.
  const LayerId keeper = has_keys() ? layer : LayerId{s.keys_of};
  e.run(ops::Attention{mixed,
                       q,
                       k,
                       v,
                       step.batch.key_values(keeper),
                       {.scale = s.scale,
                        .window = s.window,
                        .chunked = s.chunked,
                        .sinks = w.sinks,
                        .selected = selected}});
  if (s.out_norm) e.run(ops::RmsNorm{mixed, mixed, Tensor{}, rms_norm_eps_});
  if (!gate.is_null()) e.run(ops::MulActivated{mixed, mixed, gate, s.gate_activation});
  e.run(ops::Linear{out, mixed.reshape({n, s.num_heads * s.v_head_dim}), w.o});
  if (!w.o_bias.is_null()) e.run(ops::AddBias{out, w.o_bias});
}

}  // namespace

LayerStateSpec AttentionSpec::state(const CacheTypes& types) const {
  if (keys_of >= 0) return {};
  const auto of = [&](int64_t width, DType type) {
    StateTensor tensor = cached_heads(num_kv_heads, width, type);
    tensor.window = window;
    // A window is read in less time than devices take to wait for each other, and an index chooses
    // keys for groups of heads.
    tensor.has_own_heads = window == 0 && !index;
    if (index) tensor.tokens_read = index->tokens_read();
    return tensor;
  };
  LayerStateSpec layer{{of(head_dim, types.keys), of(v_head_dim, types.values)}};
  if (index) index->add_state(types, layer.tensors);
  return layer;
}

Status AttentionSpec::has_state(const CacheTypes& types) const {
  MF_RETURN_IF_ERROR(check_cached_heads("keys of a head", head_dim, types.keys));
  return check_cached_heads("values of a head", v_head_dim, types.values);
}

std::unique_ptr<Mixer> AttentionSpec::take(WeightStore& weights, const MixerPlace& place) const {
  return std::make_unique<AttentionMixer>(*this, weights, place);
}

Json AttentionSpec::config_value(std::string_view key) const {
  if (key == "layer_type") {
    if (window == 0) return "full_attention";
    return chunked ? "chunked_attention" : "sliding_attention";
  }
  if (key == "attention_multiplier") return scale;
  if (key == "query_pre_attn_scalar") return std::pow(static_cast<double>(scale), -2.0);
  if (key == "rotary_dim") return rope.rotary_dim;
  if (key == "qk_norm") return qk_norm != QkNorm::kNone;
  return nullptr;
}

}  // namespace moeflux
