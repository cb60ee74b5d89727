// Qwen3.5 and Qwen3.6 mixture-of-experts models: three gated DeltaNet layers to one gated attention
// layer, softmax router with renormalised top-k, one gated shared expert. Text only.
#include <cmath>
#include <utility>

#include "base/format.h"
#include "model/blocks/moe.h"
#include "model/family.h"

namespace moeflux {
namespace {

constexpr std::string_view kFullAttention = "full_attention";
constexpr std::string_view kLinearAttention = "linear_attention";

AttentionSpec read_attention(Config& c) {
  AttentionSpec spec;
  spec.num_heads = c.require_int("num_attention_heads", {1, 4096});
  spec.num_kv_heads = c.require_int("num_key_value_heads", {1, 4096});
  spec.head_dim = c.require_int("head_dim", {2, 4096});
  spec.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  if (spec.num_heads % spec.num_kv_heads != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           format("num_attention_heads {} is not a multiple of num_key_value_heads {}",
                  spec.num_heads, spec.num_kv_heads));
  }
  c.expect_bool("attention_bias", false);
  c.expect_bool("attn_output_gate", true);
  Config rope = c.object("rope_parameters");
  rope.expect_string("rope_type", "default");
  spec.rope.theta = rope.require_number("rope_theta", 1.0, 1e12);
  const double fraction = rope.number_or(
      "partial_rotary_factor", c.number_or("partial_rotary_factor", 0.25, 0.0, 1.0), 0.0, 1.0);
  spec.rope.rotary_dim = static_cast<int64_t>(static_cast<double>(spec.head_dim) * fraction);
  if (spec.rope.rotary_dim % 2 != 0) {
    rope.fail(ErrorCode::kInvalidArgument,
              format("partial_rotary_factor {} of head_dim {} gives an odd number of rotated "
                     "dimensions",
                     fraction, spec.head_dim));
  }
  c.absorb(rope);
  return spec;
}

GatedDeltaSpec read_gated_delta(Config& c) {
  GatedDeltaSpec spec;
  spec.key_heads = c.require_int("linear_num_key_heads", {1, 4096});
  spec.value_heads = c.require_int("linear_num_value_heads", {1, 4096});
  spec.key_dim = c.require_int("linear_key_head_dim", {1, 4096});
  spec.value_dim = c.require_int("linear_value_head_dim", {1, 4096});
  spec.conv_taps = c.require_int("linear_conv_kernel_dim", {2, 64});
  if (spec.value_heads % spec.key_heads != 0) {
    c.fail(ErrorCode::kInvalidArgument,
           format("linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
                  spec.value_heads, spec.key_heads));
  }
  return spec;
}

MoeSpec read_moe(Config& c) {
  MoeSpec moe;
  moe.num_experts = c.require_int("num_experts", {1, 65536});
  moe.experts_per_token = c.require_int("num_experts_per_tok", {1, 1024});
  moe.moe_intermediate_size = c.require_int("moe_intermediate_size");
  moe.shared_intermediate_size = c.require_int("shared_expert_intermediate_size");
  moe.router = {.score = RouterScore::kSoftmax, .normalize = true};
  if (moe.experts_per_token > moe.num_experts) {
    c.fail(ErrorCode::kInvalidArgument, format("num_experts_per_tok {} exceeds num_experts {}",
                                               moe.experts_per_token, moe.num_experts));
  }
  return moe;
}

std::vector<std::string> read_layer_types(Config& c, int64_t num_layers) {
  const int64_t interval = c.int_or("full_attention_interval", 4, {1, 1024});
  std::vector<std::string> types;
  if (c.has("layer_types")) {
    types = c.require_strings("layer_types");
  } else {
    for (int64_t i = 0; i < num_layers; ++i) {
      types.emplace_back((i + 1) % interval == 0 ? kFullAttention : kLinearAttention);
    }
  }
  if (static_cast<int64_t>(types.size()) != num_layers) {
    c.fail(ErrorCode::kInvalidArgument,
           format("layer_types has {} entries, num_hidden_layers is {}", types.size(), num_layers));
  }
  return types;
}

Result<ModelSpec> read_spec(Config& c) {
  ModelSpec spec;
  spec.model_type = c.model_type();
  const int64_t num_layers = c.require_int("num_hidden_layers", {1, 4096});
  spec.hidden_size = c.require_int("hidden_size");
  spec.vocab_size = c.require_int("vocab_size");
  spec.max_position_embeddings = c.int_or("max_position_embeddings", 262144, {1, 1 << 30});
  spec.rms_norm_eps = static_cast<float>(c.number_or("rms_norm_eps", 1e-6, 0.0, 1.0));
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", false);
  c.expect_string("hidden_act", "silu");
  LayerSpec layer;
  layer.attention = read_attention(c);
  layer.gated_delta = read_gated_delta(c);
  layer.moe = read_moe(c);
  for (const std::string& type : read_layer_types(c, num_layers)) {
    if (type != kFullAttention && type != kLinearAttention) {
      c.fail(ErrorCode::kUnsupported, format("layer_types has \"{}\", known are {} and {}", type,
                                             kFullAttention, kLinearAttention));
    }
    layer.mixer = type == kFullAttention ? MixerKind::kAttention : MixerKind::kGatedDelta;
    spec.layers.push_back(layer);
  }
  MF_RETURN_IF_ERROR(c.status());
  spec.unread_keys = c.unread_keys();
  return spec;
}

NameScheme name_scheme(const ModelSpec&) {
  return {.prefixes = {"language_model.model.", "model.language_model.", "model.",
                       "language_model.", ""},
          .ignored_prefixes = {"model.visual.", "visual.", "vision_tower.", "mtp.", "model.mtp.",
                               "language_model.mtp."}};
}

struct AttentionWeights {
  Weight q;  // per head: query, then gate
  Weight k;
  Weight v;
  Weight o;
  Tensor q_norm;
  Tensor k_norm;
};

struct GatedDeltaWeights {
  Weight qkv;
  Weight z;
  Weight b;
  Weight a;
  Weight out;
  Tensor conv;
  Tensor a_log;
  Tensor dt_bias;
  Tensor norm;
};

struct LayerWeights {
  Tensor input_norm;
  Tensor post_norm;
  AttentionWeights attention;
  GatedDeltaWeights gated_delta;
  Weight router;
  Weight shared_gate;
  blocks::SwigluWeights shared;
};

class Qwen35Moe : public Model {
 public:
  Qwen35Moe(ModelSpec spec, WeightStore& weights) : spec_(std::move(spec)) {
    const float norm_add = norms_are_zero_centred(weights) ? 1.0f : 0.0f;
    const int64_t h = spec_.hidden_size;
    embed_ = weights.matrix("embed_tokens", spec_.vocab_size, h);
    for (int64_t i = 0; i < spec_.num_layers(); ++i) {
      const LayerSpec& layer = spec_.layers[static_cast<size_t>(i)];
      layers_.push_back(take_layer(weights, i, layer, norm_add));
      if (layer.mixer == MixerKind::kAttention && inverse_frequencies_.is_null()) {
        inverse_frequencies_ = weights.constant(rope_inverse_frequencies(layer.attention.rope));
      }
    }
    final_norm_ = weights.vector("norm.weight", {h}, norm_add);
    const bool tied = spec_.tie_word_embeddings && !weights.has("lm_head.weight");
    lm_head_ = tied ? embed_ : weights.matrix("lm_head", spec_.vocab_size, h);
  }

  const ModelSpec& spec() const override { return spec_; }
  Status forward(const ForwardStep& step, Tensor logits) const override;

 private:
  // Hugging Face stores norms as w of (1 + w) and convolutions as [channels, 1, taps]; MLX stores 1
  // + w and [channels, taps, 1]. One convolution tells for the whole model.
  bool norms_are_zero_centred(const WeightStore& weights) const {
    for (int64_t i = 0; i < spec_.num_layers(); ++i) {
      const TensorEntry* conv = weights.find(format("layers.{}.linear_attn.conv1d.weight", i));
      if (conv != nullptr && conv->shape.rank() == 3) return conv->shape.back() != 1;
    }
    return !weights.has("layers.0.mlp.switch_mlp.gate_proj.weight");
  }

  LayerWeights take_layer(WeightStore& weights, int64_t i, const LayerSpec& layer,
                          float norm_add) const;
  void attention(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const;
  void gated_delta(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const;
  Status moe(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const;

  ModelSpec spec_;
  Weight embed_;
  std::vector<LayerWeights> layers_;
  Tensor inverse_frequencies_;
  Tensor final_norm_;
  Weight lm_head_;
};

LayerWeights Qwen35Moe::take_layer(WeightStore& weights, int64_t i, const LayerSpec& layer,
                                   float norm_add) const {
  const int64_t h = spec_.hidden_size;
  const std::string p = format("layers.{}.", i);
  LayerWeights w;
  w.input_norm = weights.vector(p + "input_layernorm.weight", {h}, norm_add);
  w.post_norm = weights.vector(p + "post_attention_layernorm.weight", {h}, norm_add);
  if (layer.mixer == MixerKind::kAttention) {
    const AttentionSpec& s = layer.attention;
    const int64_t q_width = s.num_heads * s.head_dim;
    const int64_t kv_width = s.num_kv_heads * s.head_dim;
    w.attention = {weights.matrix(p + "self_attn.q_proj", 2 * q_width, h),
                   weights.matrix(p + "self_attn.k_proj", kv_width, h),
                   weights.matrix(p + "self_attn.v_proj", kv_width, h),
                   weights.matrix(p + "self_attn.o_proj", h, q_width),
                   weights.vector(p + "self_attn.q_norm.weight", {s.head_dim}, norm_add),
                   weights.vector(p + "self_attn.k_norm.weight", {s.head_dim}, norm_add)};
  } else {
    const GatedDeltaSpec& s = layer.gated_delta;
    const std::string q = p + "linear_attn.";
    w.gated_delta = {weights.matrix(q + "in_proj_qkv", s.conv_channels(), h),
                     weights.matrix(q + "in_proj_z", s.values_width(), h),
                     weights.matrix(q + "in_proj_b", s.value_heads, h),
                     weights.matrix(q + "in_proj_a", s.value_heads, h),
                     weights.matrix(q + "out_proj", h, s.values_width()),
                     weights.vector(q + "conv1d.weight", {s.conv_channels(), s.conv_taps}),
                     weights.vector(q + "A_log", {s.value_heads}),
                     weights.vector(q + "dt_bias", {s.value_heads}),
                     weights.vector(q + "norm.weight", {s.value_dim})};
  }
  w.router = weights.matrix(p + "mlp.gate", layer.moe.num_experts, h);
  w.shared_gate = weights.matrix(p + "mlp.shared_expert_gate", 1, h);
  w.shared =
      blocks::take_swiglu(weights, p + "mlp.shared_expert", h, layer.moe.shared_intermediate_size);
  weights.experts(LayerId{static_cast<int32_t>(i)}, p + "mlp", layer.moe, h);
  return w;
}

void Qwen35Moe::attention(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const AttentionWeights& w = layers_[static_cast<size_t>(index(id))].attention;
  const AttentionSpec& s = spec_.layers[static_cast<size_t>(index(id))].attention;
  const int64_t n = x.dim(0);
  const Tensor q_and_gate = e.scratch({n, w.q.rows}, DType::kF32);
  Tensor k = e.scratch({n, w.k.rows}, DType::kF32);
  Tensor v = e.scratch({n, w.v.rows}, DType::kF32);
  e.linear(q_and_gate, x, w.q);
  e.linear(k, x, w.k);
  e.linear(v, x, w.v);
  const Tensor per_head = q_and_gate.split_last(2 * s.head_dim);  // [n, heads, query | gate]
  const Tensor q = per_head.slice(2, 0, s.head_dim);
  const Tensor gate = per_head.slice(2, s.head_dim, s.head_dim);
  k = k.split_last(s.head_dim);
  v = v.split_last(s.head_dim);
  e.rms_norm(q, q, w.q_norm, spec_.rms_norm_eps);
  e.rms_norm(k, k, w.k_norm, spec_.rms_norm_eps);
  const RopeOptions rope{.rotary_dim = s.rope.rotary_dim, .interleaved = s.rope.interleaved};
  e.rope(q, step.positions, inverse_frequencies_, rope);
  e.rope(k, step.positions, inverse_frequencies_, rope);
  const Tensor mixed = e.scratch({n, s.num_heads, s.head_dim}, DType::kF32);
  e.attention(mixed, q, k, v, step.state.key_value(id), {.scale = s.scale});
  e.mul_activated(mixed, mixed, gate, Activation::kSigmoid);
  e.linear(out, mixed.reshape({n, s.num_heads * s.head_dim}), w.o);
}

void Qwen35Moe::gated_delta(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const GatedDeltaWeights& w = layers_[static_cast<size_t>(index(id))].gated_delta;
  const GatedDeltaSpec& s = spec_.layers[static_cast<size_t>(index(id))].gated_delta;
  const DeltaStateView state = step.state.gated_delta(id);
  const int64_t n = x.dim(0);
  const Tensor qkv = e.scratch({n, s.conv_channels()}, DType::kF32);
  const Tensor mixed = e.scratch({n, s.conv_channels()}, DType::kF32);
  const Tensor z = e.scratch({n, s.values_width()}, DType::kF32);
  const Tensor a = e.scratch({n, s.value_heads}, DType::kF32);
  const Tensor b = e.scratch({n, s.value_heads}, DType::kF32);
  const Tensor heads = e.scratch({n, s.value_heads, s.value_dim}, DType::kF32);
  e.linear(qkv, x, w.qkv);
  e.linear(z, x, w.z);
  e.linear(b, x, w.b);
  e.linear(a, x, w.a);
  e.causal_conv(mixed, qkv, w.conv, state.conv);
  e.gated_delta(heads, mixed, a, b, w.a_log, w.dt_bias, state.delta,
                {s.key_heads, s.value_heads, s.key_dim, s.value_dim});
  e.rms_norm(heads, heads, w.norm, spec_.rms_norm_eps);
  e.mul_activated(heads, heads, z.split_last(s.value_dim), Activation::kSilu);
  e.linear(out, heads.reshape({n, s.values_width()}), w.out);
}

Status Qwen35Moe::moe(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const LayerWeights& w = layers_[static_cast<size_t>(index(id))];
  const MoeSpec& s = spec_.layers[static_cast<size_t>(index(id))].moe;
  const int64_t n = x.dim(0);
  const Tensor logits = e.scratch({n, s.num_experts}, DType::kF32);
  const Tensor shared = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor shared_gate = e.scratch({n, 1}, DType::kF32);
  e.linear(logits, x, w.router);
  MF_RETURN_IF_ERROR(blocks::routed_experts(step, id, out, x, logits, s, [&] {
    blocks::swiglu(e, shared, x, w.shared);
    e.linear(shared_gate, x, w.shared_gate);
    e.mul_activated(shared, shared, shared_gate, Activation::kSigmoid);
  }));
  e.add(out, out, shared);
  return {};
}

Status Qwen35Moe::forward(const ForwardStep& step, Tensor logits) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = step.token_ids.dim(0);
  const Tensor x = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor normed = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor branch = e.scratch({n, spec_.hidden_size}, DType::kF32);
  e.embed(x, embed_, step.token_ids);
  for (int32_t i = 0; i < spec_.num_layers(); ++i) {
    const LayerWeights& w = layers_[static_cast<size_t>(i)];
    if (step.observer != nullptr) step.observer->hidden_state(e, i, x);
    e.rms_norm(normed, x, w.input_norm, spec_.rms_norm_eps);
    if (spec_.layers[static_cast<size_t>(i)].mixer == MixerKind::kAttention) {
      attention(step, LayerId{i}, branch, normed);
    } else {
      gated_delta(step, LayerId{i}, branch, normed);
    }
    e.add(x, x, branch);
    e.rms_norm(normed, x, w.post_norm, spec_.rms_norm_eps);
    MF_RETURN_IF_ERROR(moe(step, LayerId{i}, branch, normed));
    e.add(x, x, branch);
  }
  if (logits.is_null() && step.observer == nullptr) return {};
  e.rms_norm(normed, x, final_norm_, spec_.rms_norm_eps);
  if (step.observer != nullptr) step.observer->hidden_state(e, spec_.num_layers(), normed);
  if (!logits.is_null()) {
    e.linear(logits, normed.slice(0, n - logits.dim(0), logits.dim(0)), lm_head_);
  }
  return {};
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  return std::make_unique<Qwen35Moe>(spec, weights);
}

}  // namespace

extern const Family qwen3_5_moe_family;
const Family qwen3_5_moe_family = {
    {"qwen3_5_moe", "qwen3_5_moe_text"}, read_spec, name_scheme, create};

}  // namespace moeflux
