#include "model/blocks/gated_streams.h"

#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/mixers/no_mixer.h"
#include "model/repeated.h"

namespace moeflux::blocks {
namespace {

/// Weights by which a branch reads, or the head. All that is made of the norm is divided by the
/// number of streams, so its weights are.
struct Reader {
  Tensor norm;    // [streams, hidden_size]
  Weight down;    // to gate_rank
  Weight up;      // to a gate for each number of each stream
  Weight inject;  // to the logit of a gate for each stream; null for the head
};

class GatedStreams : public Residual {
 public:
  GatedStreams(const ModelSpec& spec, WeightStore& weights, float norm_add)
      : spec_(spec.streams), hidden_size_(spec.hidden_size), norm_eps_(spec.rms_norm_eps) {
    for (int64_t i = 0; i < spec.num_layers(); ++i) {
      const LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
      const auto take_branch = [&](bool is_there, const char* branch) {
        const std::string name = formatted("layers.{}.{}_hyper_connection", i, branch);
        readers_.push_back(is_there ? take(weights, name, spec, norm_add) : Reader{});
        if (is_there) {
          readers_.back().inject =
              weights.router(name + ".block_inject_weight", spec_.count, width());
        }
      };
      take_branch(is_mixer(*layer.mixer), "attn");
      take_branch(layer.has_network(), "mlp");
    }
    last_ = take(weights, "hyper_connection_mixer", spec, norm_add);
    if (spec.draft_layers == 0) return;
    draft_last_ =
        take(weights, formatted("layers.{}.hyper_connection_mixer", spec.num_text_layers()), spec,
             norm_add);
  }

  ResidualStream begin(Encoder& e, int64_t tokens) const override {
    const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };
    const int64_t n = spec_.count;
    return {.now = scratch({tokens, n, hidden_size_}),
            .next = scratch({tokens, n, hidden_size_}),
            .narrow = scratch({tokens, hidden_size_}),
            .gates = {scratch({tokens, n}), {}, true}};
  }
  Tensor room(const ResidualStream& stream) const override { return stream.narrow; }
  void start(Encoder& e, ResidualStream& stream) const override {
    e.run(ops::Copy{stream.now, repeated_rows(stream.narrow, spec_.count)});
  }
  Tensor read(Encoder& e, const ResidualStream& stream, const Branch& branch) const override {
    const auto number = static_cast<size_t>(2 * index(branch.layer) + (branch.is_network ? 1 : 0));
    return read_by(e, stream, readers_[number]);
  }
  void add(Encoder& e, ResidualStream& stream, const Branch&, Tensor result) const override {
    e.run(ops::ExpandStreams{stream.next, stream.now, result, stream.gates});
    std::swap(stream.now, stream.next);
  }
  Tensor whole(const ResidualStream& stream) const override { return flat(stream.now); }
  Tensor end(Encoder& e, const ResidualStream& stream) const override {
    return read_by(e, stream, last_);
  }
  Tensor end_draft(Encoder& e, const ResidualStream& stream) const override {
    return read_by(e, stream, draft_last_);
  }

 private:
  int64_t width() const { return spec_.count * hidden_size_; }
  Tensor flat(const Tensor& streams) const {
    return streams.reshape({streams.dim(0), spec_.count * hidden_size_});
  }
  Reader take(WeightStore& weights, const std::string& name, const ModelSpec& spec,
              float norm_add) const {
    const int64_t rank = spec_.gate_rank;
    const float share = 1.0f / static_cast<float>(spec_.count);
    return {take_stream_norm(weights, name + ".hc_norm", spec, norm_add, share),
            weights.matrix(name + ".input_mix_weight_down", rank, width()),
            weights.matrix(name + ".input_mix_weight_up", width(), rank),
            {}};
  }
  Tensor read_by(Encoder& e, const ResidualStream& stream, const Reader& reader) const;

  const StreamSpec spec_;
  const int64_t hidden_size_;
  const float norm_eps_;
  std::vector<Reader> readers_;  // two a layer
  Reader last_;
  Reader draft_last_;
};

Tensor GatedStreams::read_by(Encoder& e, const ResidualStream& stream, const Reader& reader) const {
  ScratchScope scope(e);
  const auto scratch = [&](int64_t cols) {
    return e.scratch({stream.now.dim(0), cols}, DType::kF32);
  };
  const Tensor normed = e.scratch(stream.now.shape, DType::kF32);
  const Tensor gates = e.scratch(stream.now.shape, DType::kF32);
  const Tensor low = scratch(spec_.gate_rank);
  const Tensor unit = scratch(spec_.gate_rank);
  norm_streams(e, normed, stream.now, reader.norm, norm_eps_);
  // Beside each other, as they share their x.
  e.run(ops::Linear{low, flat(normed), reader.down});
  if (reader.inject.rows > 0) e.run(ops::Linear{stream.gates.write, flat(normed), reader.inject});
  e.run(ops::MulActivated{unit, low, low, Activation::kSigmoid});  // SiLU
  e.run(ops::Linear{flat(gates), unit, reader.up});
  e.run(ops::SumGated{stream.narrow, normed, gates});
  return stream.narrow;
}

}  // namespace

void norm_streams(Encoder& e, Tensor out, Tensor x, Tensor weight, float eps) {
  e.run(ops::RmsNorm{out, x, weight, eps});
}

Tensor take_stream_norm(WeightStore& weights, const std::string& name, const ModelSpec& spec,
                        float norm_add, float factor) {
  const int64_t streams = spec.streams.count;
  const Tensor weight =
      weights.mapped_vector(name + ".weight", {streams * spec.hidden_size},
                            [=](float value) { return (value + norm_add) * factor; });
  return weight.is_null() ? weight : weight.reshape({streams, spec.hidden_size});
}

std::unique_ptr<Residual> make_gated_streams(const ModelSpec& spec, WeightStore& weights,
                                             float norm_add) {
  return std::make_unique<GatedStreams>(spec, weights, norm_add);
}

}  // namespace moeflux::blocks
