// Gemma 4 (text): sandwich norms, in every layer a dense network, in the 26B-A4B beside experts;
// sliding and full attention of different head sizes, scaled embeddings, optional soft cap on the
// logits. The small ones have embeddings of their own for each layer, and in their last layers the
// keys and values of earlier ones.
#include <cmath>
#include <utility>

#include "base/format.h"
#include "model/blocks/moe.h"
#include "model/blocks/wanted_rows.h"
#include "model/family/family.h"
#include "model/family/spec_fields.h"
#include "model/mixers/attention.h"

namespace moeflux::gemma4 {
namespace {

// Head sizes of full-attention layers, by the original keys or by per_layer_config {"5":
// {"head_dim": 512}}.
void read_layer_overrides(Config& c, Config& per_layer, size_t i, bool sliding,
                          AttentionSpec& attention) {
  const bool v_is_k = c.bool_or("attention_k_eq_v", false);
  if (!sliding) {
    attention.head_dim = c.int_or("global_head_dim", attention.head_dim, {2, 4096});
    attention.v_is_k = v_is_k;
    const int64_t global_kv_heads =
        c.int_or("num_global_key_value_heads", attention.num_kv_heads, {1, 4096});
    if (attention.v_is_k) attention.num_kv_heads = global_kv_heads;
  }
  Config own = object_of_layer(per_layer, i);
  attention.head_dim = own.int_or("head_dim", attention.head_dim, {2, 4096});
  attention.num_kv_heads = own.int_or("num_key_value_heads", attention.num_kv_heads, {1, 4096});
  attention.v_head_dim = attention.head_dim;
  c.absorb(own);
}

// Configs of models without experts may have null for their numbers.
bool read_has_experts(Config& c) {
  const bool has_experts = c.bool_or("enable_moe_block", c.has("num_experts"));
  if (has_experts) return true;
  for (const std::string_view key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) {
    c.ignore(key);
  }
  return false;
}

int64_t read_per_layer_width(Config& c, int64_t vocab_size) {
  const int64_t width = c.int_or("hidden_size_per_layer_input", 0, {0, 1 << 16});
  const int64_t vocabulary = c.int_or("vocab_size_per_layer_input", vocab_size, {0, 1 << 24});
  if (width > 0 && vocabulary != vocab_size) {
    c.fail(ErrorCode::kUnsupported,
           formatted("vocab_size_per_layer_input is {}, vocab_size is {}", vocabulary, vocab_size));
  }
  return width;
}

// The last layers have the keys and values of the last layer before them of their kind.
void share_keys(Config& c, const std::vector<bool>& sliding, std::vector<LayerSpec>& layers) {
  const auto num_layers = static_cast<int64_t>(layers.size());
  const int64_t first = num_layers - c.int_or("num_kv_shared_layers", 0, {0, num_layers - 1});
  const int64_t widening = c.bool_or("use_double_wide_mlp", false) ? 2 : 1;
  for (int64_t i = first; i < num_layers; ++i) {
    LayerSpec& layer = layers[static_cast<size_t>(i)];
    int64_t keeper = first - 1;
    while (keeper >= 0 && sliding[static_cast<size_t>(keeper)] != sliding[static_cast<size_t>(i)]) {
      --keeper;
    }
    if (keeper < 0) {
      return c.fail(ErrorCode::kInvalidArgument,
                    formatted("num_kv_shared_layers is {}, which leaves layer {} no layer of its "
                              "kind to share keys with",
                              num_layers - first, i));
    }
    AttentionSpec attention = *mixer_as<AttentionSpec>(layer);
    attention.keys_of = static_cast<int32_t>(keeper);
    attention.v_is_k = false;
    layer.mixer = share_mixer(std::move(attention));
    layer.dense_intermediate_size *= widening;
  }
}

// Published configs leave out defaults of transformers' class.
void assume_defaults(Config& c) {
  if (!c.has("per_layer_config") && !c.mentions("global_head_dim")) {
    c.assume("global_head_dim", 512);
  }
  if (c.has("rope_theta") || c.has("rope_scaling")) return;
  c.assume(
      "rope_parameters",
      {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}},
       {"full_attention",
        {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e6}}}});
}

Result<ModelSpec> read_spec(Config& c) {
  assume_defaults(c);
  c.ignore("hidden_act");
  ModelSpec spec = read_trunk(c);
  for (const std::string_view key : {"head_dim", "num_key_value_heads"}) c.expect_present(key);
  spec.tie_word_embeddings = c.bool_or("tie_word_embeddings", true);
  c.expect_string("hidden_activation", "gelu_pytorch_tanh");
  const bool has_experts = read_has_experts(c);
  c.expect_bool("attention_bias", false);
  c.expect_string("use_bidirectional_attention", "vision");  // among the tokens of an image
  spec.logit_soft_cap = static_cast<float>(c.number_or("final_logit_softcapping", 0.0, 0.0, 1e6));
  const int64_t num_layers = read_num_layers(c);
  LayerSpec layer;
  AttentionSpec attention = read_heads(c, spec.hidden_size);
  attention.scale = 1.0f;
  attention.qk_norm = QkNorm::kPerHead;
  attention.v_norm = true;
  if (has_experts) layer.moe = read_experts(c);
  layer.moe.glu.activation = Activation::kGeluTanh;
  layer.dense_intermediate_size = c.require_int("intermediate_size");
  layer.dense_glu = layer.moe.glu;
  layer.per_layer_width = read_per_layer_width(c, spec.vocab_size);
  const int64_t window = c.require_int("sliding_window", {1, 1 << 30});
  std::vector<bool> pattern = read_sliding_layers(c, num_layers);
  if (!pattern.empty()) pattern.back() = false;  // as its code has it, whatever layer_types say
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
  share_keys(c, pattern, spec.layers);
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
  Weight per_layer_gate;
  Weight per_layer_projection;
  Tensor post_per_layer_norm;
  Tensor router_scale;
  Weight router;
  RouterOptions routing;
};

class Gemma4 : public Model {
 public:
  Gemma4(ModelSpec spec, WeightStore& weights) : spec_(std::move(spec)) {
    embed_ = weights.embedding(spec_.vocab_size, spec_.hidden_size, spec_.tie_word_embeddings);
    if (const int64_t width = per_layer_width(); width > 0) {
      const int64_t all = spec_.num_layers() * width;
      embed_for_layers_ = weights.per_head_matrix("embed_tokens_per_layer", spec_.vocab_size, all);
      projection_for_layers_ = weights.matrix("per_layer_model_projection", all, spec_.hidden_size);
      norm_for_layers_ = weights.vector("per_layer_projection_norm.weight", {width});
    }
    for (int32_t i = 0; i < spec_.num_layers(); ++i) layers_.push_back(take_layer(weights, i));
    final_norm_ = weights.vector("norm.weight", {spec_.hidden_size});
    lm_head_ = weights.head(embed_, spec_.vocab_size, spec_.hidden_size, spec_.tie_word_embeddings);
  }

  const ModelSpec& spec() const override { return spec_; }
  Status forward(const ForwardStep& step, Tensor logits) const override;

 private:
  LayerWeights take_layer(WeightStore& weights, int32_t i) const;
  void take_experts(WeightStore& weights, int32_t i, LayerWeights& w) const;
  int64_t per_layer_width() const { return spec_.layers.front().per_layer_width; }
  Tensor embed_for_layers(const ForwardStep& step, Tensor x) const;
  void add_embedding(Encoder& e, int32_t i, Tensor x, Tensor inputs, Tensor branch) const;
  std::vector<LentKeys> room_for_keys(Encoder& e, int64_t n) const;
  Status feed_forward(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const;

  ModelSpec spec_;
  Weight embed_;
  Weight embed_for_layers_;  // [vocabulary, layers * width]
  Weight projection_for_layers_;
  Tensor norm_for_layers_;
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
  w.post_norm = norm("post_feedforward_layernorm");
  w.layer_scalar = weights.host_vector(p + "layer_scalar", 1, 1.0f).front();
  w.mixer =
      s.mixer->take(weights, {.layer = p, .hidden_size = h, .rms_norm_eps = spec_.rms_norm_eps});
  w.dense = blocks::take_ffn(weights, p + "mlp", h, s.dense_intermediate_size, s.dense_glu);
  if (s.per_layer_width > 0) {
    w.per_layer_gate = weights.matrix(p + "per_layer_input_gate", s.per_layer_width, h);
    w.per_layer_projection = weights.matrix(p + "per_layer_projection", h, s.per_layer_width);
    w.post_per_layer_norm = norm("post_per_layer_input_norm");
  }
  if (s.moe.num_experts > 0) take_experts(weights, i, w);
  return w;
}

void Gemma4::take_experts(WeightStore& weights, int32_t i, LayerWeights& w) const {
  const int64_t h = spec_.hidden_size;
  const std::string p = formatted("layers.{}.", i);
  const LayerSpec& s = spec_.layers[static_cast<size_t>(i)];
  w.post_dense_norm = weights.vector(p + "post_feedforward_layernorm_1.weight", {h});
  w.pre_experts_norm = weights.vector(p + "pre_feedforward_layernorm_2.weight", {h});
  w.post_experts_norm = weights.vector(p + "post_feedforward_layernorm_2.weight", {h});
  w.router_scale = weights.vector(p + "router.scale", {h});
  w.router = weights.router(p + "router.proj", s.moe.num_experts, h);
  w.routing = s.moe.router;
  w.routing.expert_scale = weights.vector(p + "router.per_expert_scale", {s.moe.num_experts});
  // The trailing dot of the prefix belongs to the name that follows.
  weights.experts(LayerId{i}, p.substr(0, p.size() - 1), s.moe, h);
}

// (embedding + norm(projection of x)) / sqrt(2) for all layers, [n, layers * width].
Tensor Gemma4::embed_for_layers(const ForwardStep& step, Tensor x) const {
  if (per_layer_width() == 0) return {};
  Encoder& e = step.encoder;
  const auto width = static_cast<float>(per_layer_width());
  const Shape shape{x.dim(0), spec_.num_layers() * per_layer_width()};
  const Tensor inputs = e.scratch(shape, DType::kF32);
  ScratchScope scope(e);
  const Tensor projected = e.scratch(shape, DType::kF32);
  e.run(ops::Embed{inputs, embed_for_layers_, step.token_ids});
  e.run(ops::Scale{inputs, inputs, std::sqrt(width)});
  e.run(ops::Linear{projected, x, projection_for_layers_});
  e.run(ops::Scale{projected, projected, 1.0f / std::sqrt(static_cast<float>(spec_.hidden_size))});
  const Tensor heads = projected.split_last(per_layer_width());
  e.run(ops::RmsNorm{heads, heads, norm_for_layers_, spec_.rms_norm_eps});
  e.run(ops::Add{inputs, inputs, projected});
  e.run(ops::Scale{inputs, inputs, std::sqrt(0.5f)});
  return inputs;
}

// x += norm(projection of gelu(gate of x) * the layer's part of `inputs`).
void Gemma4::add_embedding(Encoder& e, int32_t i, Tensor x, Tensor inputs, Tensor branch) const {
  if (inputs.is_null()) return;
  ScratchScope scope(e);
  const LayerWeights& w = layers_[static_cast<size_t>(i)];
  const int64_t width = per_layer_width();
  const Tensor gate = e.scratch({x.dim(0), width}, DType::kF32);
  e.run(ops::Linear{gate, x, w.per_layer_gate});
  e.run(ops::Glu{gate, gate, inputs.slice(1, i * width, width),
                 spec_.layers[static_cast<size_t>(i)].dense_glu});
  e.run(ops::Linear{branch, gate, w.per_layer_projection});
  e.run(ops::RmsNorm{branch, branch, w.post_per_layer_norm, spec_.rms_norm_eps});
  e.run(ops::Add{x, x, branch});
}

std::vector<LentKeys> Gemma4::room_for_keys(Encoder& e, int64_t n) const {
  std::vector<LentKeys> lent;
  for (const LayerSpec& layer : spec_.layers) {
    const int32_t keeper = mixer_as<AttentionSpec>(layer)->keys_of;
    if (keeper < 0) continue;
    lent.resize(spec_.layers.size());
    LentKeys& keys = lent[static_cast<size_t>(keeper)];
    if (!keys.k.is_null()) continue;
    const auto& s = *mixer_as<AttentionSpec>(spec_.layers[static_cast<size_t>(keeper)]);
    keys.k = e.scratch({n, s.num_kv_heads, s.head_dim}, DType::kF32);
    keys.v = e.scratch({n, s.num_kv_heads, s.v_head_dim}, DType::kF32);
  }
  return lent;
}

// out = norm(dense(norm(x))) + norm(experts(norm(x))), the router looking at x itself; or
// dense(norm(x)).
Status Gemma4::feed_forward(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const {
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const LayerWeights& w = layers_[static_cast<size_t>(index(id))];
  const LayerSpec& s = spec_.layers[static_cast<size_t>(index(id))];
  const float eps = spec_.rms_norm_eps;
  const Shape like_x{x.dim(0), spec_.hidden_size};
  if (s.moe.num_experts == 0) {
    const Tensor input = e.scratch(like_x, DType::kF32);
    e.run(ops::RmsNorm{input, x, w.pre_dense_norm, eps});
    blocks::ffn(e, out, input, w.dense, {}, s.dense_glu);
    return {};
  }
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

Status Gemma4::forward(const ForwardStep& given, Tensor logits) const {
  ForwardStep step = given;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const float eps = spec_.rms_norm_eps;
  const int64_t n = step.token_ids.dim(0);
  const Tensor x = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor normed = e.scratch({n, spec_.hidden_size}, DType::kF32);
  const Tensor branch = e.scratch({n, spec_.hidden_size}, DType::kF32);
  e.run(ops::Embed{x, embed_, step.token_ids});
  e.run(ops::Scale{x, x, std::sqrt(static_cast<float>(spec_.hidden_size))});
  const Tensor inputs = embed_for_layers(step, x);
  std::vector<LentKeys> lent = room_for_keys(e, n);
  step.lent = lent;
  for (int32_t i = 0; i < spec_.num_layers(); ++i) {
    const LayerWeights& w = layers_[static_cast<size_t>(i)];
    if (step.observer != nullptr) step.observer->hidden_state(e, i, x);
    MF_RETURN_IF_ERROR(step.begin_layer(LayerId{i}));
    e.run(ops::RmsNorm{normed, x, w.input_norm, eps});
    w.mixer->forward(step, LayerId{i}, branch, normed);
    e.run(ops::RmsNorm{branch, branch, w.post_attention_norm, eps});
    e.run(ops::Add{x, x, branch});
    MF_RETURN_IF_ERROR(feed_forward(step, LayerId{i}, branch, x));
    e.run(ops::RmsNorm{branch, branch, w.post_norm, eps});
    e.run(ops::Add{x, x, branch});
    add_embedding(e, i, x, inputs, branch);
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

extern const Family family = {
    {"gemma4", "gemma4_text"},          read_spec, usual_names, create, mlx_names,
    {{"gemma4_unified", "gemma4_text"}}};

}  // namespace moeflux::gemma4
