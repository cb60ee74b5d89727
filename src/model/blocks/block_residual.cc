#include "model/blocks/block_residual.h"

#include <string>
#include <utility>
#include <vector>

#include "base/format.h"

namespace moeflux::blocks {
namespace {

/// The sum of the branches of a block of layers. A branch reads a mix of it and of those that ended
/// earlier blocks, the embedding being the first.
class BlockResidual : public Residual {
 public:
  BlockResidual(const ModelSpec& spec, WeightStore& weights)
      : spec_(spec.block_residual),
        hidden_size_(spec.hidden_size),
        num_layers_(spec.num_layers()),
        mix_{.eps = spec.rms_norm_eps} {
    for (int64_t i = 0; i < num_layers_; ++i) {
      const std::string layer = formatted("layers.{}.", i);
      readers_.push_back(take(weights, layer + "self_attention_res"));
      readers_.push_back(take(weights, layer + "mlp_res"));
    }
    last_ = take(weights, "output_attn_res");
  }

  ResidualStream begin(Encoder& e, int64_t tokens) const override {
    const auto scratch = [&](const Shape& shape) { return e.scratch(shape, DType::kF32); };
    ResidualStream stream;
    stream.now = scratch({tokens, hidden_size_});
    stream.next = scratch({tokens, hidden_size_});
    stream.narrow = scratch({tokens, hidden_size_});
    const int64_t blocks = (num_layers_ + spec_.layers - 1) / spec_.layers;
    stream.blocks = scratch({blocks, tokens, hidden_size_});
    return stream;
  }
  Tensor room(const ResidualStream& stream) const override { return stream.next; }
  void start(Encoder&, ResidualStream& stream) const override {
    std::swap(stream.now, stream.next);
  }
  Tensor read(Encoder& e, const ResidualStream& stream, const Branch& branch) const override {
    const auto number = static_cast<size_t>(2 * index(branch.layer) + (branch.is_network ? 1 : 0));
    return read_by(e, stream, readers_[number]);
  }
  void add(Encoder& e, ResidualStream& stream, const Branch&, Tensor result) const override {
    // Each layer adds twice.
    const int64_t branch = stream.added++;
    if (branch % (2 * spec_.layers) == 0) {
      const Tensor block = stream.blocks.slice(0, stream.num_blocks++, 1);
      e.run(ops::Copy{block.reshape(stream.now.shape), stream.now});
      e.run(ops::Copy{stream.now, result});
      return;
    }
    e.run(ops::Add{stream.next, stream.now, result});
    std::swap(stream.now, stream.next);
  }
  Tensor whole(const ResidualStream& stream) const override { return stream.now; }
  Tensor end(Encoder& e, const ResidualStream& stream) const override {
    return read_by(e, stream, last_);
  }

 private:
  /// The vector that normed states are scored by, or its factors.
  struct Reader {
    Tensor query;  // null where the factors are there
    Tensor norm;
    Tensor proj;
  };
  Reader take(WeightStore& weights, const std::string& name) const {
    if (weights.has(name + "_score.weight")) {  // GGUF's
      return {weights.vector(name + "_score.weight", {hidden_size_}), {}, {}};
    }
    return {{},
            weights.vector(name + "_norm.weight", {hidden_size_}),
            weights.vector(name + "_proj.weight", {hidden_size_})};
  }
  Tensor read_by(Encoder& e, const ResidualStream& stream, const Reader& reader) const {
    if (stream.num_blocks == 0) return stream.now;
    ScratchScope scope(e);
    Tensor query = reader.query;
    if (query.is_null()) {
      query = e.scratch({1, hidden_size_}, DType::kF32);
      e.run(ops::MulActivated{query, reader.proj.reshape({1, hidden_size_}),
                              reader.norm.reshape({1, hidden_size_}), Activation::kIdentity});
    }
    e.run(ops::MixBlocks{stream.narrow, stream.blocks.slice(0, 0, stream.num_blocks), stream.now,
                         query, mix_});
    return stream.narrow;
  }

  const BlockResidualSpec spec_;
  const int64_t hidden_size_;
  const int64_t num_layers_;
  const BlockMix mix_;
  std::vector<Reader> readers_;  // two a layer
  Reader last_;
};

}  // namespace

std::unique_ptr<Residual> make_block_residual(const ModelSpec& spec, WeightStore& weights) {
  return std::make_unique<BlockResidual>(spec, weights);
}

}  // namespace moeflux::blocks
