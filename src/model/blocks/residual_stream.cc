#include "model/blocks/residual_stream.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/portable_math.h"
#include "model/blocks/block_residual.h"
#include "model/blocks/gated_streams.h"
#include "model/mixers/no_mixer.h"
#include "model/repeated.h"

namespace moeflux::blocks {
namespace {

/// A sum of all branches.
class PlainResidual : public Residual {
 public:
  explicit PlainResidual(int64_t hidden_size) : hidden_size_(hidden_size) {}

  ResidualStream begin(Encoder& e, int64_t tokens) const override {
    const Shape shape{tokens, hidden_size_};
    ResidualStream stream;
    stream.now = e.scratch(shape, DType::kF32);
    stream.next = e.scratch(shape, DType::kF32);
    return stream;
  }
  Tensor room(const ResidualStream& stream) const override { return stream.next; }
  void start(Encoder&, ResidualStream& stream) const override {
    std::swap(stream.now, stream.next);
  }
  Tensor read(Encoder&, const ResidualStream& stream, const Branch&) const override {
    return stream.now;
  }
  void add(Encoder& e, ResidualStream& stream, const Branch&, Tensor result) const override {
    e.run(ops::Add{stream.next, stream.now, result});
    std::swap(stream.now, stream.next);
  }
  Tensor whole(const ResidualStream& stream) const override { return stream.now; }
  Tensor end(Encoder&, const ResidualStream& stream) const override { return stream.now; }
  Tensor handed_on(const ResidualStream&, const Tensor& normed) const override { return normed; }

 private:
  int64_t hidden_size_;
};

/// A sum in which the n-th branch, counted from the second, weighs 1/n of the squares: so the sum
/// keeps its size.
class DepthScaledResidual : public PlainResidual {
 public:
  using PlainResidual::PlainResidual;

  void add(Encoder& e, ResidualStream& stream, const Branch& branch, Tensor result) const override {
    const double number = 2.0 * (index(branch.layer) + 1) + (branch.is_network ? 1.0 : 0.0);
    e.run(ops::Scale{result, result, static_cast<float>(1.0 / std::sqrt(number))});
    const auto rest = static_cast<float>(std::sqrt((number - 1.0) / number));
    e.run(ops::Scale{stream.now, stream.now, rest});
    PlainResidual::add(e, stream, branch, result);
  }
};

/// A sum of parts that a gate for each number weighs: beta of a branch and alpha of what was there,
/// whose squares add up to 1.
class GatedResidual : public PlainResidual {
 public:
  GatedResidual(const ModelSpec& spec, WeightStore& weights) : PlainResidual(spec.hidden_size) {
    const double temperature = spec.residual_gate_temperature;
    const auto beta = [temperature](float gate) {
      return static_cast<float>(1.0 /
                                (1.0 + portable_exp(-static_cast<double>(gate) / temperature)));
    };
    const auto alpha = [beta](float gate) {
      constexpr double kLeast = 1e-3;
      const double own = beta(gate);
      return static_cast<float>(std::sqrt(std::max((1.0 - own) * (1.0 + own), kLeast)));
    };
    for (int64_t i = 0; i < spec.num_layers(); ++i) {
      for (const char* branch : {"attention", "feedforward"}) {
        const std::string name = formatted("layers.{}.post_{}_residual_gate.gate", i, branch);
        gates_.push_back({weights.mapped_vector(name, {spec.hidden_size}, alpha),
                          weights.mapped_vector(name, {spec.hidden_size}, beta)});
      }
    }
  }

  void add(Encoder& e, ResidualStream& stream, const Branch& branch, Tensor result) const override {
    const Gates& gates =
        gates_[static_cast<size_t>(2 * index(branch.layer) + (branch.is_network ? 1 : 0))];
    const auto weigh = [&](Tensor x, Tensor gate) {
      e.run(ops::MulActivated{x, x, rows_of_vector(gate, x.dim(0)), Activation::kIdentity});
    };
    weigh(stream.now, gates.alpha);
    weigh(result, gates.beta);
    PlainResidual::add(e, stream, branch, result);
  }

 private:
  struct Gates {
    Tensor alpha;  // [hidden_size]
    Tensor beta;
  };
  std::vector<Gates> gates_;  // two a layer
};

/// A sum whose parts both get a bias and a factor for each number, as the embedding does.
class ScaledResidual : public PlainResidual {
 public:
  ScaledResidual(const ModelSpec& spec, WeightStore& weights)
      : PlainResidual(spec.hidden_size), embedding_(take(weights, "input_hidden_states", spec)) {
    for (int64_t i = 0; i < spec.num_layers(); ++i) {
      for (const char* branch : {"attention", "mlp"}) {
        const std::string name = formatted("layers.{}.post_{}_residual_scale.", i, branch);
        results_.push_back(take(weights, name + "hidden_states", spec));
        residuals_.push_back(take(weights, name + "residual", spec));
      }
    }
  }

  void start(Encoder& e, ResidualStream& stream) const override {
    PlainResidual::start(e, stream);
    scale(e, stream.now, embedding_);
  }
  void add(Encoder& e, ResidualStream& stream, const Branch& branch, Tensor result) const override {
    const auto number = static_cast<size_t>(2 * index(branch.layer) + (branch.is_network ? 1 : 0));
    scale(e, result, results_[number]);
    scale(e, stream.now, residuals_[number]);
    PlainResidual::add(e, stream, branch, result);
  }

 private:
  struct Scaling {
    Tensor bias;  // [hidden_size]
    Tensor factor;
  };
  static Scaling take(WeightStore& weights, const std::string& name, const ModelSpec& spec) {
    return {weights.vector(name + "_bias", {spec.hidden_size}),
            weights.vector(name + "_scale", {spec.hidden_size})};
  }
  static void scale(Encoder& e, Tensor x, const Scaling& by) {
    e.run(ops::AddBias{x, by.bias});
    e.run(ops::MulActivated{x, x, rows_of_vector(by.factor, x.dim(0)), Activation::kIdentity});
  }

  Scaling embedding_;
  std::vector<Scaling> results_;  // two a layer
  std::vector<Scaling> residuals_;
};

/// Several streams, of which a branch reads a weighted sum. The last norm sees their mean, or such
/// a sum. Gates may be those that the branch before has made: then its logits, with the scale and
/// the base that belong to them, stand where a branch's own of reading would.
class MixedStreams : public Residual {
 public:
  MixedStreams(const ModelSpec& spec, WeightStore& weights)
      : spec_(spec.streams), hidden_size_(spec.hidden_size), norm_eps_(spec.rms_norm_eps) {
    for (int64_t i = 0; i < spec.num_layers(); ++i) {
      const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
      branches_.push_back(is_mixer(*layer.mixer) ? take(weights, i, "attn") : BranchWeights{});
      branches_.push_back(layer.has_network() ? take(weights, i, "ffn") : BranchWeights{});
    }
    if (spec_.reads_late) {
      const std::string last = formatted("layers.{}.hc_ffn_", spec.num_layers() - 1);
      end_.base = weights.constant(late_numbers(weights, last + "base", spec_.count));
      end_.scale = weights.constant(late_numbers(weights, last + "scale", 1));
    }
    if (!spec_.gated_end) return;
    end_ = take_end(weights, "");
    if (spec.draft_layers == 0) return;
    draft_end_ = take_end(weights, formatted("layers.{}.", spec.num_text_layers()));
  }

  ResidualStream begin(Encoder& e, int64_t tokens) const override {
    const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };
    const int64_t n = spec_.count;
    return {.now = scratch({tokens, n, hidden_size_}),
            .next = scratch({tokens, n, hidden_size_}),
            .narrow = scratch({tokens, hidden_size_}),
            .gates = {scratch({tokens, n}), mixes() ? scratch({tokens, n, n}) : Tensor{}},
            .late = spec_.reads_late ? scratch({tokens, n}) : Tensor{},
            .made = spec_.reads_late ? scratch({tokens, n}) : Tensor{}};
  }
  Tensor room(const ResidualStream& stream) const override { return stream.narrow; }
  void start(Encoder& e, ResidualStream& stream) const override {
    e.run(ops::Copy{stream.now, repeated_rows(stream.narrow, spec_.count)});
  }
  Tensor read(Encoder& e, const ResidualStream& stream, const Branch& branch) const override {
    const auto number = static_cast<size_t>(2 * index(branch.layer) + (branch.is_network ? 1 : 0));
    if (!spec_.reads_late) return read_by(e, stream, branches_[number], stream.gates);
    const bool is_first = number == 0;
    const Tensor seen =
        read_by(e, stream, branches_[number], stream.gates, is_first ? Tensor{} : stream.late);
    if (is_first) e.run(ops::Copy{seen, one(stream, 0)});
    return seen;
  }
  void add(Encoder& e, ResidualStream& stream, const Branch&, Tensor result) const override {
    e.run(ops::ExpandStreams{stream.next, stream.now, result, stream.gates});
    std::swap(stream.now, stream.next);
    std::swap(stream.late, stream.made);
  }
  Tensor whole(const ResidualStream& stream) const override {
    return stream.now.reshape({stream.now.dim(0), spec_.count * hidden_size_});
  }
  Tensor end(Encoder& e, const ResidualStream& stream) const override {
    if (spec_.gated_end) return read_by(e, stream, end_, {});
    if (spec_.reads_late) {
      weigh(e, stream, end_, {}, stream.late);
      return stream.narrow;
    }
    e.run(ops::Add{stream.narrow, one(stream, 0), one(stream, 1)});
    for (int64_t i = 2; i < spec_.count; ++i)
      e.run(ops::Add{stream.narrow, stream.narrow, one(stream, i)});
    e.run(ops::Scale{stream.narrow, stream.narrow, 1.0f / static_cast<float>(spec_.count)});
    return stream.narrow;
  }
  Tensor end_draft(Encoder& e, const ResidualStream& stream) const override {
    return spec_.gated_end ? read_by(e, stream, draft_end_, {}) : end(e, stream);
  }

 private:
  struct BranchWeights {
    Weight gates;
    Tensor scale;
    Tensor base;
  };
  bool mixes() const { return spec_.iterations > 0; }
  /// The first `count` numbers of a tensor of gates.
  std::vector<float> late_numbers(WeightStore& weights, const std::string& name,
                                  int64_t count) const {
    const int64_t all = count == 1 ? kinds() : kinds_width();
    std::vector<float> numbers = weights.host_vector(name, all, 0.0f);
    numbers.resize(static_cast<size_t>(count));
    return numbers;
  }
  int64_t kinds() const { return mixes() ? 3 : 2; }
  int64_t kinds_width() const { return (mixes() ? 2 + spec_.count : 2) * spec_.count; }
  BranchWeights take_end(WeightStore& weights, const std::string& place) const {
    return {weights.float_matrix(place + "hc_head_fn", spec_.count, spec_.count * hidden_size_),
            weights.vector(place + "hc_head_scale", {1}),
            weights.vector(place + "hc_head_base", {spec_.count})};
  }
  BranchWeights take(WeightStore& weights, int64_t layer, std::string_view branch) const {
    const std::string name = formatted("layers.{}.hc_{}_", layer, branch);
    BranchWeights w;
    w.gates = weights.float_matrix(name + "fn", kinds_width(), spec_.count * hidden_size_);
    if (!spec_.reads_late) {
      w.scale = weights.vector(name + "scale", {kinds()});
      w.base = weights.vector(name + "base", {kinds_width()});
      return w;
    }
    std::vector<float> scale = weights.host_vector(name + "scale", kinds(), 0.0f);
    std::vector<float> base = weights.host_vector(name + "base", kinds_width(), 0.0f);
    const std::string before = branch == "ffn" ? formatted("layers.{}.hc_attn_", layer)
                                               : formatted("layers.{}.hc_ffn_", layer - 1);
    if (layer > 0 || branch == "ffn") {
      std::ranges::copy(late_numbers(weights, before + "scale", 1), scale.begin());
      std::ranges::copy(late_numbers(weights, before + "base", spec_.count), base.begin());
    }
    w.scale = weights.constant(scale);
    w.base = weights.constant(base);
    return w;
  }
  Tensor one(const ResidualStream& stream, int64_t i) const {
    return whole(stream).slice(1, i * hidden_size_, hidden_size_);
  }
  /// Reads by the logits `late` where they are given.
  Tensor read_by(Encoder& e, const ResidualStream& stream, const BranchWeights& w,
                 const StreamGates& gates, Tensor late = {}) const;
  void weigh(Encoder& e, const ResidualStream& stream, const BranchWeights& w,
             const StreamGates& gates, Tensor logits) const;

  const StreamSpec spec_;
  const int64_t hidden_size_;
  const float norm_eps_;
  std::vector<BranchWeights> branches_;  // two a layer
  BranchWeights end_;
  BranchWeights draft_end_;
};

Tensor MixedStreams::read_by(Encoder& e, const ResidualStream& stream, const BranchWeights& w,
                             const StreamGates& gates, Tensor late) const {
  ScratchScope scope(e);
  const Tensor all = whole(stream);
  const Tensor normed = e.scratch(all.shape, DType::kF32);
  const Tensor logits = e.scratch({all.dim(0), w.gates.rows}, DType::kF32);
  e.run(ops::RmsNorm{normed, all, {}, norm_eps_});
  e.run(ops::Linear{logits, normed, w.gates});
  if (spec_.reads_late) {
    const Tensor own = logits.slice(1, 0, spec_.count);
    e.run(ops::Copy{stream.made, own});
    if (!late.is_null()) e.run(ops::Copy{own, late});
  }
  weigh(e, stream, w, gates, logits);
  return stream.narrow;
}

void MixedStreams::weigh(Encoder& e, const ResidualStream& stream, const BranchWeights& w,
                         const StreamGates& gates, Tensor logits) const {
  e.run(ops::ReadStreams{stream.narrow,
                         gates,
                         stream.now,
                         logits,
                         {.scale = w.scale,
                          .base = w.base,
                          .iterations = spec_.iterations,
                          .eps = spec_.eps,
                          .magnitude = spec_.magnitude,
                          .write_eps = mixes() ? 0.0f : spec_.eps}});
}

}  // namespace

std::unique_ptr<Residual> make_residual(const ModelSpec& spec, WeightStore& weights,
                                        float norm_add) {
  if (spec.residual_gate_temperature > 0.0f) return std::make_unique<GatedResidual>(spec, weights);
  if (spec.scaled_residual) return std::make_unique<ScaledResidual>(spec, weights);
  if (spec.depth_scaled_residual) return std::make_unique<DepthScaledResidual>(spec.hidden_size);
  if (spec.block_residual.layers > 0) return make_block_residual(spec, weights);
  if (spec.streams.count == 1) return std::make_unique<PlainResidual>(spec.hidden_size);
  if (spec.streams.gate_rank > 0) return make_gated_streams(spec, weights, norm_add);
  return std::make_unique<MixedStreams>(spec, weights);
}

}  // namespace moeflux::blocks
