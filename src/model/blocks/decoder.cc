#include "model/blocks/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/format.h"
#include "model/blocks/draft_head.h"
#include "model/blocks/early_router.h"
#include "model/blocks/ngram_embedding.h"
#include "model/blocks/residual_stream.h"
#include "model/blocks/wanted_rows.h"
#include "model/mixers/no_mixer.h"
#include "model/repeated.h"
#include "model/token_rows.h"

namespace moeflux::blocks {
namespace {

struct LayerWeights {
  ResidualNorm input_norm;
  std::vector<Tensor> input_norms;  // of LayerSpec::mixer_inputs, where there is more than one
  ResidualNorm post_norm;
  Tensor attention_out_norm;
  Tensor ffn_out_norm;
  NgramWeights ngrams;
  std::unique_ptr<Mixer> mixer;  // null without one
  MoeWeights moe;
  FfnWeights dense;
  float dense_out_scale = 1.0f;
  // Null where what branches add goes through none.
  Tensor attention_out_conv;
  Tensor ffn_out_conv;
  size_t conv_state = 0;  // the first of the two convolutions' states
};

/// The passes of a loop follow one another. A layer that predicts further tokens is not among them.
std::vector<LayerId> order_of(const ModelSpec& spec) {
  std::vector<LayerId> order;
  for (int32_t i = 0; i < spec.num_own_layers() - spec.draft_layers; ++i) {
    order.push_back(LayerId{i});
    if (i + 1 != spec.loop.end) continue;
    for (int64_t later = spec.num_own_layers(); later < spec.num_layers(); ++later) {
      order.push_back(LayerId{static_cast<int32_t>(later)});
    }
  }
  return order;
}

class Decoder : public Model {
 public:
  Decoder(ModelSpec spec, WeightStore& weights, const DecoderOptions& options)
      : spec_(std::move(spec)),
        plain_attention_out_norm_(options.plain_attention_out_norm),
        ffn_out_norm_scales_first_(options.ffn_out_norm_scales_first) {
    const int64_t h = spec_.hidden_size;
    const int64_t rows = spec_.padded_vocab_size > 0 ? spec_.padded_vocab_size : spec_.vocab_size;
    embed_ = weights.embedding(rows, h, spec_.tie_word_embeddings);
    if (!options.names.embedding_norm.empty()) {
      embedding_norm_ = weights.vector(options.names.embedding_norm + ".weight", {h});
    }
    residual_ = make_residual(spec_, weights, options.norm_add);
    order_ = order_of(spec_);
    for (int32_t i = 0; i < spec_.num_layers(); ++i) {
      const bool is_own = layer_spec(LayerId{i}).pass_over < 0;
      layers_.push_back(is_own ? take_layer(weights, LayerId{i}, options) : LayerWeights{});
      mixer_inputs_ = std::max(mixer_inputs_, layer_spec(LayerId{i}).mixer_inputs);
      lends_keys_ |= layer_spec(LayerId{i}).mixer->lends();
    }
    const std::string& final_norm = options.names.final_norm;
    if (!final_norm.empty()) {
      final_norm_ = weights.vector(final_norm + ".weight", {h},
                                   options.final_norm_add.value_or(options.norm_add));
    }
    lm_head_ = spec_.padded_vocab_size > 0
                   ? weights.padded_head(spec_.vocab_size, rows, h)
                   : weights.head(embed_, spec_.vocab_size, h, spec_.tie_word_embeddings);
    if (spec_.head_bias) head_bias_ = weights.vector("lm_head.bias", {spec_.vocab_size});
    if (spec_.draft_layers == 0) return;
    draft_head_ = take_draft_head(weights, draft_layer(), spec_, options.norm_add);
    draft_hidden_ = spec_.layers.back().mixer->state({}).tensors.size();
  }

  const ModelSpec& spec() const override { return spec_; }
  Status forward(const ForwardStep& given, Tensor logits) const override;
  Status draft(const ForwardStep& given, const DraftRows& rows, Tensor logits) const override;

 private:
  /// Scratch of a step.
  struct Room {
    Tensor normed;  // f32 [n, hidden_size]
    Tensor branch;  // the same
    Tensor inputs;  // [mixer_inputs, n, hidden_size], null for one
  };
  Room take_room(Encoder& e, int64_t n) const;
  LayerId draft_layer() const { return LayerId{static_cast<int32_t>(spec_.num_layers() - 1)}; }
  const LayerSpec& layer_spec(LayerId id) const {
    return spec_.layers[static_cast<size_t>(index(id))];
  }
  LayerId weights_of(LayerId id) const {
    const int64_t other = layer_spec(id).pass_over;
    return other < 0 ? id : LayerId{static_cast<int32_t>(other)};
  }
  LayerWeights take_layer(WeightStore& weights, LayerId id, const DecoderOptions& options) const;
  Status feed_forward(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const;
  void embed(Encoder& e, Tensor out, Tensor token_ids) const;
  /// x [n, hidden] += conv(x).
  void convolve(const ForwardStep& step, LayerId layer, Tensor x, Tensor taps, size_t state) const;
  void add(Encoder& e, ResidualStream& stream, const Branch& branch, Tensor result) const;
  void norm_result(Encoder& e, const Branch& branch, Tensor result) const;
  /// The tensor that the branch sees.
  Tensor read(Encoder& e, const ResidualStream& stream, const Branch& branch,
              const ResidualNorm& norm, const Room& room) const;
  Tensor read_mixer(Encoder& e, const ResidualStream& stream, LayerId layer, const LayerWeights& w,
                    const Room& room) const;
  Status run_layer(const ForwardStep& step, LayerId layer, ResidualStream& stream,
                   const Room& room) const;
  void head(Encoder& e, Tensor logits, Tensor normed) const;
  void norm_last(Encoder& e, Tensor normed, Tensor last, Tensor weight) const;
  /// The last norm, and the head where logits are wanted.
  void finish(const ForwardStep& step, const ResidualStream& stream, Tensor normed,
              Tensor logits) const;
  Status look_ahead(const ForwardStep& step, LayerId next, const ResidualStream& stream) const;

  ModelSpec spec_;
  bool plain_attention_out_norm_;
  bool ffn_out_norm_scales_first_;
  Weight embed_;
  Tensor embedding_norm_;
  std::unique_ptr<Residual> residual_;
  std::vector<LayerWeights> layers_;
  std::vector<LayerId> order_;  // in which they run
  Tensor final_norm_;
  Weight lm_head_;
  Tensor head_bias_;         // null without one
  DraftHead draft_head_;     // of draft_layer()
  size_t draft_hidden_ = 0;  // the tensor of its state with what the text's layers gave
  bool lends_keys_ = false;
  int64_t mixer_inputs_ = 1;  // the most of a layer
};

LayerWeights Decoder::take_layer(WeightStore& weights, LayerId id,
                                 const DecoderOptions& options) const {
  const int64_t h = spec_.hidden_size;
  const std::string p = formatted("layers.{}.", index(id));
  const DecoderNames& names = options.names;
  const LayerSpec& s = layer_spec(id);
  LayerWeights w;
  const auto norm = [&](const std::string& name) {
    return name.empty() ? Tensor{} : weights.vector(p + name + ".weight", {h}, options.norm_add);
  };
  const auto gated_norm = [&](const std::string& name, int64_t rank) -> ResidualNorm {
    if (rank == 0) return {norm(name)};
    return {norm(name + ".norm"), weights.matrix(p + name + ".W_down", rank, h),
            weights.matrix(p + name + ".W_up", h, rank)};
  };
  w.ngrams = take_ngram_embedding(weights, id, spec_, options.norm_add);
  if (s.mixer_inputs > 1) {
    for (const std::string& name : names.input_norms) w.input_norms.push_back(norm(name));
  } else if (is_mixer(*s.mixer)) {
    w.input_norm = gated_norm(names.input_norm, spec_.norm_gate_rank);
  }
  if (is_mixer(*s.mixer)) w.attention_out_norm = norm(names.attention_out_norm);
  if (s.has_network()) {
    w.post_norm = gated_norm(names.ffn_norm, s.moe.num_experts > 0 ? spec_.norm_gate_rank : 0);
    w.ffn_out_norm =
        norm(s.moe.num_experts > 0 && !names.moe_out_norm.empty() ? names.moe_out_norm
                                                                  : names.ffn_out_norm);
  }
  w.mixer = s.mixer->take(weights, {.layer = p,
                                    .hidden_size = h,
                                    .rms_norm_eps = spec_.rms_norm_eps,
                                    .norm_add = options.norm_add});
  if (s.moe.num_experts > 0) {
    w.moe = take_moe(weights, id,
                     {p + names.router, p + names.correction_bias, p + names.moe, p + names.shared,
                      p + names.shared_gate, p + names.latent_in, p + names.latent_out,
                      p + names.table, p + names.latent_norm, p + names.expert_norm,
                      p + names.latent_out_norm, p + names.out_scale},
                     s.moe, h);
  } else if (s.has_network()) {
    w.dense =
        take_ffn(weights, p + names.dense, h, s.dense_intermediate_size, s.dense_glu, s.dense_bias);
    if (s.dense_out_scale) {
      w.dense_out_scale = weights.host_vector(p + names.dense_out_scale, 1, 1.0f).front();
    }
  }
  if (s.out_conv_taps > 0) {
    const Shape taps{h, s.out_conv_taps};
    w.attention_out_conv = weights.vector(p + names.attention_out_conv + ".weight", taps);
    w.ffn_out_conv = weights.vector(p + names.ffn_out_conv + ".weight", taps);
    w.conv_state = s.mixer->state({}).tensors.size();
  }
  return w;
}

Status Decoder::feed_forward(const ForwardStep& step, LayerId id, Tensor out, Tensor x) const {
  const LayerSpec& s = layer_spec(id);
  const LayerWeights& w = layers_[static_cast<size_t>(index(id))];
  if (s.moe.num_experts > 0) return moe(step, id, out, x, w.moe, s.moe, spec_.rms_norm_eps);
  if (w.dense.is_plain()) {
    MF_RETURN_IF_ERROR(step.network(id, {out, x, w.dense.glu, {}, s.dense_glu}));
  } else {
    ffn(step.encoder, out, x, w.dense, {}, s.dense_glu);
  }
  if (s.dense_out_scale) step.encoder.run(ops::Scale{out, out, w.dense_out_scale});
  return {};
}

void Decoder::embed(Encoder& e, Tensor out, Tensor token_ids) const {
  e.run(ops::Embed{out, embed_, token_ids});
  if (spec_.embedding_multiplier != 1.0f) e.run(ops::Scale{out, out, spec_.embedding_multiplier});
  if (spec_.embedding_norm) e.run(ops::RmsNorm{out, out, embedding_norm_, spec_.rms_norm_eps});
}

void Decoder::convolve(const ForwardStep& step, LayerId layer, Tensor x, Tensor taps,
                       size_t state) const {
  if (taps.is_null()) return;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const Tensor mixed = e.scratch(x.shape, DType::kF32);
  e.run(ops::CausalConv{mixed, x, taps, {Activation::kIdentity}, step.batch.states(layer, state)});
  e.run(ops::Add{x, x, mixed});
  if (!layer_spec(layer).out_conv_scaled) return;
  const double terms = static_cast<double>(layer_spec(layer).out_conv_taps + 1);
  e.run(ops::Scale{x, x, static_cast<float>(1.0 / std::sqrt(terms))});
}

void Decoder::norm_result(Encoder& e, const Branch& branch, Tensor result) const {
  const LayerWeights& w = layers_[static_cast<size_t>(index(weights_of(branch.layer)))];
  Tensor weight = branch.is_network ? w.ffn_out_norm : w.attention_out_norm;
  if (weight.is_null() && (branch.is_network || !plain_attention_out_norm_)) return;
  if (branch.is_network && ffn_out_norm_scales_first_) {
    e.run(ops::MulActivated{result, result, rows_of_vector(weight, result.dim(0)),
                            Activation::kIdentity});
    weight = {};
  }
  residual_norm(e, spec_, result, result, {weight}, spec_.out_norm_eps);
}

void Decoder::add(Encoder& e, ResidualStream& stream, const Branch& branch, Tensor result) const {
  norm_result(e, branch, result);
  if (spec_.residual_multiplier != 1.0f)
    e.run(ops::Scale{result, result, spec_.residual_multiplier});
  residual_->add(e, stream, branch, result);
}

// At the end of a layer, when the drive has nothing to do until the next router. With fable-20m and
// 13, 5 and 1 % of lookups missing, 63, 49 and 40 % of guesses of absent experts came true there,
// against 53, 41 and 29 % before this layer's experts were added.
Status Decoder::look_ahead(const ForwardStep& step, LayerId next,
                           const ResidualStream& stream) const {
  if (layer_spec(next).moe.num_experts == 0) return {};
  const LayerWeights& w = layers_[static_cast<size_t>(index(next))];
  return apply_early(step, {.layer = next,
                            .residual = residual_.get(),
                            .stream = &stream,
                            .norm = w.post_norm.is_null() ? w.input_norm : w.post_norm,
                            .weights = &w.moe,
                            .model = &spec_});
}

Decoder::Room Decoder::take_room(Encoder& e, int64_t n) const {
  Room room{.normed = e.scratch({n, spec_.hidden_size}, DType::kF32),
            .branch = e.scratch({n, spec_.hidden_size}, DType::kF32),
            .inputs = {}};
  if (mixer_inputs_ > 1) {
    room.inputs = e.scratch({mixer_inputs_, n, spec_.hidden_size}, DType::kF32);
  }
  return room;
}

Tensor Decoder::read(Encoder& e, const ResidualStream& stream, const Branch& branch,
                     const ResidualNorm& norm, const Room& room) const {
  const Tensor x = residual_->read(e, stream, branch);
  if (norm.is_null()) return x;
  residual_norm(e, spec_, room.normed, x, norm);
  return room.normed;
}

Tensor Decoder::read_mixer(Encoder& e, const ResidualStream& stream, LayerId layer,
                           const LayerWeights& w, const Room& room) const {
  const int64_t count = layer_spec(layer).mixer_inputs;
  if (count == 1) return read(e, stream, {layer, false}, w.input_norm, room);
  for (int64_t i = 0; i < count; ++i) {
    const Tensor x = residual_->read(e, stream, {layer, false, i});
    residual_norm(
        e, spec_, room.inputs.slice(0, i, 1).reshape(x.shape), x,
        w.input_norms.empty() ? w.input_norm : ResidualNorm{w.input_norms[static_cast<size_t>(i)]});
  }
  return room.inputs;
}

Status Decoder::run_layer(const ForwardStep& step, LayerId layer, ResidualStream& stream,
                          const Room& room) const {
  Encoder& e = step.encoder;
  const LayerId own = weights_of(layer);
  const LayerWeights& w = layers_[static_cast<size_t>(index(own))];
  MF_RETURN_IF_ERROR(step.begin_layer(own));
  residual_->enter(e, stream, layer);
  if (!w.ngrams.is_null()) {
    MF_RETURN_IF_ERROR(add_ngram_embedding(step, layer, spec_, w.ngrams, stream.now));
  }
  if (w.mixer != nullptr) {
    w.mixer->forward(step, layer, room.branch, read_mixer(e, stream, layer, w, room));
    convolve(step, layer, room.branch, w.attention_out_conv, w.conv_state);
    add(e, stream, {layer, false}, room.branch);
  }
  if (!layer_spec(own).has_network()) return {};
  // Without a norm of its own it sees what the mixer has seen, if that has one.
  const bool reads = !w.post_norm.is_null() || w.input_norm.is_null();
  const Tensor x = reads ? read(e, stream, {layer, true}, w.post_norm, room) : room.normed;
  MF_RETURN_IF_ERROR(feed_forward(step, own, room.branch, x));
  convolve(step, layer, room.branch, w.ffn_out_conv, w.conv_state + 1);
  add(e, stream, {layer, true}, room.branch);
  return {};
}

void Decoder::head(Encoder& e, Tensor logits, Tensor normed) const {
  e.run(ops::Linear{logits, normed, lm_head_});
  if (!head_bias_.is_null()) e.run(ops::AddBias{logits, head_bias_});
  if (spec_.logit_multiplier != 1.0f) e.run(ops::Scale{logits, logits, spec_.logit_multiplier});
  if (spec_.logit_soft_cap > 0.0f) e.run(ops::SoftCap{logits, spec_.logit_soft_cap});
}

// Without weights, reading the residual has normed it.
void Decoder::norm_last(Encoder& e, Tensor normed, Tensor last, Tensor weight) const {
  if (weight.is_null()) {
    e.run(ops::Copy{normed, last});
  } else {
    residual_norm(e, spec_, normed, last, {weight});
  }
}

// `normed` [n, hidden] is room.
void Decoder::finish(const ForwardStep& step, const ResidualStream& stream, Tensor normed,
                     Tensor logits) const {
  Encoder& e = step.encoder;
  int64_t seen = spec_.num_text_layers();
  if (step.observer != nullptr && spec_.streams.count > 1) {
    step.observer->hidden_state(e, seen++, residual_->whole(stream));
  }
  norm_last(e, normed, residual_->end(e, stream), final_norm_);
  if (step.observer != nullptr) step.observer->hidden_state(e, seen, normed);
  if (spec_.draft_layers > 0) {
    store_rows(e, step.batch, draft_layer(), draft_hidden_, residual_->handed_on(stream, normed));
  }
  if (!logits.is_null()) {
    head(e, logits, wanted_rows(e, step.batch, normed, residual_->room(stream)));
  }
}

Status Decoder::forward(const ForwardStep& given, Tensor logits) const {
  KeySelection selection;
  ForwardStep step = given;
  step.selection = &selection;
  std::vector<LentKeys> lent(lends_keys_ ? spec_.layers.size() : 0);
  step.lent = lent;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = step.token_ids.dim(0);
  ResidualStream stream = residual_->begin(e, n);
  const int64_t router_width = last_moe(spec_).router_hidden_size;
  if (router_width > 0) step.carried = e.scratch({n, router_width}, DType::kF32);
  const Room room = take_room(e, n);
  embed(e, residual_->room(stream), step.token_ids);
  residual_->start(e, stream);
  for (size_t i = 0; i < order_.size(); ++i) {
    if (step.observer != nullptr) {
      step.observer->hidden_state(e, static_cast<int64_t>(i), residual_->whole(stream));
    }
    MF_RETURN_IF_ERROR(run_layer(step, order_[i], stream, room));
    if (i + 1 < order_.size()) MF_RETURN_IF_ERROR(look_ahead(step, order_[i + 1], stream));
  }
  const bool is_seen = step.observer != nullptr || spec_.draft_layers > 0;
  if (!logits.is_null() || is_seen) finish(step, stream, room.normed, logits);
  return {};
}

Status Decoder::draft(const ForwardStep& given, const DraftRows& rows, Tensor logits) const {
  MF_CHECK(spec_.draft_layers > 0);
  KeySelection selection;
  ForwardStep step = given;
  step.selection = &selection;
  Encoder& e = step.encoder;
  ScratchScope scope(e);
  const int64_t n = step.token_ids.dim(0);
  // First, as a table may lie on another device than the layer, which gets what scratch holds.
  const Tensor embedded = e.scratch({n, spec_.hidden_size}, DType::kF32);
  embed(e, embedded, step.token_ids);
  const Tensor hidden = e.scratch({n, spec_.draft_width()}, DType::kF32);
  if (rows.hidden.is_null()) {
    load_rows(e, step.batch, draft_layer(), draft_hidden_, hidden);
  } else {
    e.run(ops::Copy{hidden, rows.hidden});
  }
  ResidualStream stream = residual_->begin(e, n);
  combine_draft(e, spec_, draft_head_, residual_->whole(stream), embedded, hidden);
  const Room room = take_room(e, n);
  MF_RETURN_IF_ERROR(run_layer(step, draft_layer(), stream, room));
  if (logits.is_null() && rows.out.is_null()) return {};
  norm_last(e, room.normed, residual_->end_draft(e, stream), draft_head_.final_norm);
  if (!rows.out.is_null()) e.run(ops::Copy{rows.out, residual_->handed_on(stream, room.normed)});
  if (!logits.is_null()) head(e, logits, room.normed);
  return {};
}

}  // namespace

bool any_layer_has(const ModelSpec& spec, const WeightStore& weights, std::string_view name) {
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    if (weights.has(formatted("layers.{}.{}", i, name))) return true;
  }
  return false;
}

std::unique_ptr<Model> make_decoder(const ModelSpec& spec, WeightStore& weights,
                                    const DecoderOptions& options) {
  return std::make_unique<Decoder>(spec, weights, options);
}

std::unique_ptr<Model> make_decoder(const ModelSpec& spec, WeightStore& weights) {
  return make_decoder(spec, weights, {});
}

}  // namespace moeflux::blocks
