// Gemma 4 26B-A4B (text): sandwich norms, a dense network and experts side by side in every layer,
// sliding and full attention of different head sizes, scaled embeddings, optional soft cap on the
// logits.
#include <cmath>
#include <utility>

#include "base/format.h"
#include "model/blocks/moe.h"
#include "model/blocks/wanted_rows.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux {
namespace gemma4 {
namespace {

// Head sizes of full-attention layers, by the original keys or by per_layer_config {"5":
// {"head_dim": 512}}.
void read_layer_overrides(Config& c, Config& per_layer, size_t i, bool sliding,
                          AttentionSpec& attention) {
  if (!sliding) {
    attention.head_dim = c.int_or("global_head_dim", attention.head_dim, {2, 4096});
    attention.v_is_k = c.bool_or("attention_k_eq_v", false);
    const int64_t global_kv_heads =
        c.int_or("num_global_key_value_heads", attention.num_kv_heads, {1, 4096});
    if (attention.v_is_k) attention.num_kv_heads = global_kv_heads;
  }
  Config own = per_layer.object(formatted("{}", i));
  attention.head_dim = own.int_or("head_dim", attention.head_dim, {2, 4096});
  attention.num_kv_heads = own.int_or("num_key_value_heads", attention.num_kv_heads, {1, 4096});
  attention.v_head_dim = attention.head_dim;
  c.absorb(own);
}

Result<ModelSpec> read_spec(Config& c) {
  c.ignore("hidden_act");
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  c.expect_string("hidden_activation", "gelu_pytorch_tanh");
  c.expect_bool("enable_moe_block", true);
  c.expect_bool("use_double_wide_mlp", false);
  c.expect_bool("attention_bias", false);
  for (const std::string_view key : {"hidden_size_per_layer_input", "num_kv_shared_layers"}) {
    if (c.int_or(key, 0, {0, 1 << 24}) != 0) {
      c.fail(ErrorCode::kUnsupported, formatted("{} is not 0", key));
    }
  }
  c.ignore("vocab_size_per_layer_input");
  c.expect_string("use_bidirectional_attention", "vision");  // among the tokens of an image
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 0.0, 0.0, 1e6));
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.scale = 1.0f;
  attention.qk_norm = QkNorm::kPerHead;
  attention.v_norm = true;
  layer.moe = read_experts(c);
  layer.moe.glu.activation = Activation::kGeluTanh;
  layer.dense_intermediate_size = c.require_int("intermediate_size");
  layer.dense_glu = layer.moe.glu;
  const int64_t window = c.require_int("sliding_window", {1, 1 << 30});
  const std::vector<bool> pattern = read_sliding_layers(c, num_layers);
  Config per_layer = c.object("per_layer_config");
  for (size_t i = 0; i < pattern.size(); ++i) {
    LayerSpec own = layer;
    AttentionSpec of_layer = attention;
    read_layer_overrides(c, per_layer, i, pattern[i], of_layer);
    of_layer.window = pattern[i] ? window : 0;
    of_layer.rope =
        read_rope(c, {.head_dim = of_layer.head_dim,
                      .layer_type = pattern[i] ? "sliding_attention" : "full_attention"});
    own.mixer = share_mixer(std::move(of_layer));
    spec.layers.push_back(std::move(own));
  }
  return finish_spec(c, std::move(spec));
}

struct LayerWeights {
  Tensor input_norm;
  Tensor post_attention_norm;
  Tensor pre_dense_norm;
  Tensor post_dense_norm;
  Tensor pre_experts_norm;
  Tensor post_experts_norm;
  Tensor post_norm;
  float layer_scalar = 1.0f;
  std::unique_ptr<Mixer> mixer;
  blocks::FfnWeights dense;
  Tensor router_scale;
  Weight router;
  RouterOptions routing;
};

class Gemma4 : public Model {
 public:
  Gemma4(ModelSpec spec, WeightStore& weights) : spec_(std::move(spec)) {
    embed_ = weights.embedding(spec_.vocab_size, spec_.hidden_size, spec_.tie_word_embeddings);
    for (int32_t i = 0; i < spec_.num_layers(); ++i) layers_.push_back(take_layer(weights, i));
    final_norm_ = weights.vector("norm.weight", {spec_.hidden_size});
    lm_head_ = weights.head(embed_, spec_.vocab_size, spec_.hidden_size, spec_.tie_word_embeddings);
  }

  const ModelSpec& spec() const override { return spec_; }
  Status forward(const ForwardStep& step, Tensor logits) const override;

 private:
  LayerWeights take_layer(WeightStore& weights, int32_t i) const;
  Status feed_forward(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const;

  ModelSpec spec_;
  Weight embed_;
  std::vector<LayerWeights> layers_;
  Tensor final_norm_;
  Weight lm_head_;
};

LayerWeights Gemma4::take_layer(WeightStore& weights, int32_t i) const {
  const int64_t h = spec_.hidden_size;
  const std::string p = formatted("layers.{}.", i);
  const LayerSpec& s = spec_.layers[static_cast<size_t>(i)];
  const auto norm = [&](std::string_view name) {
    return weights.vector(p + std::string(name) + ".weight", {h});
  };
  LayerWeights w;
  w.input_norm = norm("input_layernorm");
  w.post_attention_norm = norm("post_attention_layernorm");
  w.pre_dense_norm = norm("pre_feedforward_layernorm");
  w.post_dense_norm = norm("post_feedforward_layernorm_1");
  w.pre_experts_norm = norm("pre_feedforward_layernorm_2");
  w.post_experts_norm = norm("post_feedforward_layernorm_2");
  w.post_norm = norm("post_feedforward_layernorm");
  w.layer_scalar = weights.scalar(p + "layer_scalar");
  w.mixer =
      s.mixer->take(weights, {.layer = p, .hidden_size = h, .rms_norm_eps = spec_.rms_norm_eps});
  w.dense = blocks::take_ffn(weights, p + "mlp", h, s.dense_intermediate_size, s.dense_glu);
  w.router_scale = weights.vector(p + "router.scale", {h});
  w.router = weights.router(p + "router.proj", s.moe.num_experts, h);
  w.routing = s.moe.router;
  w.routing.expert_scale = weights.vector(p + "router.per_expert_scale", {s.moe.num_experts});
  // The trailing dot of the prefix belongs to the name that follows.
  weights.experts(LayerId{i}, p.substr(0, p.size() - 1), s.moe, h);
  return w;
}

// out = norm(dense(norm(x))) + norm(experts(norm(x))), the router looking at x itself.
Status Gemma4::feed_forward(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const LayerWeights& w = layers_[static_cast<size_t>(index(id))];
  const LayerSpec& s = spec_.layers[static_cast<size_t>(index(id))];
  const float eps = spec_.rms_norm_eps;
  const Shape like_x{x.dim(0), spec_.hidden_size};
  const Tensor router_input = e.scratch(like_x, DType::kF32);
  const Tensor normed = e.scratch(like_x, DType::kF32);
  const Tensor dense = e.scratch(like_x, DType::kF32);
  const Tensor logits = e.scratch({x.dim(0), s.moe.num_experts}, DType::kF32);
  e.run(ops::RmsNorm{router_input, x, w.router_scale, eps});
  e.run(ops::Scale{router_input, router_input,
                   1.0f / std::sqrt(static_cast<float>(spec_.hidden_size))});
  e.run(ops::Linear{logits, router_input, w.router});
  MoeSpec moe = s.moe;
  moe.router = w.routing;
  const Tensor experts_input = e.scratch(like_x, DType::kF32);
  e.run(ops::RmsNorm{experts_input, x, w.pre_experts_norm, eps});
  MF_RETURN_IF_ERROR(blocks::routed_experts(step, id, out, experts_input, logits, moe, [&] {
    e.run(ops::RmsNorm{normed, x, w.pre_dense_norm, eps});
    blocks::ffn(e, dense, normed, w.dense, {}, s.dense_glu);
    e.run(ops::RmsNorm{dense, dense, w.post_dense_norm, eps});
  }));
  e.run(ops::RmsNorm{out, out, w.post_experts_norm, eps});
  e.run(ops::Add{out, out, dense});
  return {};
}

Status Gemma4::forward(const ForwardStep& step, Tensor logits) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const float eps = spec_.rms_norm_eps;
  const int64_t n = step.token_ids.dim(0);
  const Tensor x = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor normed = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor branch = e.scratch({n, spec_.hidden_size}, DType::kF32);
  e.run(ops::Embed{x, embed_, step.token_ids});
  e.run(ops::Scale{x, x, std::sqrt(static_cast<float>(spec_.hidden_size))});
  for (int32_t i = 0; i < spec_.num_layers(); ++i) {
    const LayerWeights& w = layers_[static_cast<size_t>(i)];
    if (step.observer != nullptr) step.observer->hidden_state(e, i, x);
    e.run(ops::RmsNorm{normed, x, w.input_norm, eps});
    w.mixer->forward(step, LayerId{i}, branch, normed);
    e.run(ops::RmsNorm{branch, branch, w.post_attention_norm, eps});
    e.run(ops::Add{x, x, branch});
    MF_RETURN_IF_ERROR(feed_forward(step, LayerId{i}, branch, x));
    e.run(ops::RmsNorm{branch, branch, w.post_norm, eps});
    e.run(ops::Add{x, x, branch});
    e.run(ops::Scale{x, x, w.layer_scalar});
  }
  if (logits.is_null() && step.observer == nullptr) return {};
  e.run(ops::RmsNorm{normed, x, final_norm_, eps});
  if (step.observer != nullptr) step.observer->hidden_state(e, spec_.num_layers(), normed);
  if (logits.is_null()) return {};
  e.run(ops::Linear{logits, blocks::wanted_rows(e, step.batch, normed, branch), lm_head_});
  if (spec_.logit_soft_cap > 0.0f) e.run(ops::SoftCap{logits, spec_.logit_soft_cap});
  return {};
}

std::unique_ptr<Model> create(const ModelSpec& spec, WeightStore& weights) {
  return std::make_unique<Gemma4>(spec, weights);
}

MlxNames mlx_names(std::string_view model_type) {
  MlxNames names{.experts = "experts.switch_glu"};
  if (model_type == "gemma4") names.prefix = "language_model.model.";
  return names;
}

}  // namespace
}  // namespace gemma4

extern const Family gemma4_family;
const Family gemma4_family = {
    {"gemma4", "gemma4_text"}, gemma4::read_spec, usual_names, gemma4::create, gemma4::mlx_names};

}  // namespace moeflux
