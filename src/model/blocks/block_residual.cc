#include "model/blocks/block_residual.h"

#include <algorithm>
#include <cmath>
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
        loop_(spec.loop),
        hidden_size_(spec.hidden_size),
        num_layers_(spec.num_own_layers()),
        norm_eps_(spec.rms_norm_eps),
        mix_(mix_of(spec)) {
    if (spec_.sums_normed) {
      take_queries(spec, weights);
      return;
    }
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
    if (loop_.passes == 1) return stream;
    if (past_blocks() > 0) stream.past_blocks = scratch({past_blocks(), tokens, hidden_size_});
    stream.past = scratch({tokens, hidden_size_});
    stream.message = scratch({tokens, hidden_size_});
    return stream;
  }
  Tensor room(const ResidualStream& stream) const override { return stream.next; }
  void start(Encoder&, ResidualStream& stream) const override {
    std::swap(stream.now, stream.next);
  }
  /// A later pass begins where the first one did; what the last one has left becomes its past.
  void enter(Encoder& e, ResidualStream& stream, LayerId layer) const override {
    if (index(layer) < num_layers_ || own_layer(layer) != loop_.begin) return;
    const int64_t first = loop_.begin / spec_.layers;  // the block that was whole before the loop
    if (past_blocks() > 0) {
      e.run(ops::Copy{stream.past_blocks, stream.blocks.slice(0, first + 1, past_blocks())});
    }
    e.run(ops::Copy{stream.past, stream.now});
    e.run(ops::Copy{stream.now, stream.blocks.slice(0, first, 1).reshape(stream.now.shape)});
    stream.num_blocks = first;
  }
  Tensor read(Encoder& e, const ResidualStream& stream, const Branch& branch) const override {
    const int64_t own = own_layer(branch.layer);
    const auto number = static_cast<size_t>(2 * own + (branch.is_network ? 1 : 0));
    const Tensor x = read_by(e, stream, readers_[number], branch.input);
    if (index(branch.layer) < num_layers_) return x;
    const int64_t kind = branch.is_network ? kNetworkMessage : branch.input;
    hear(e, stream, messages_[static_cast<size_t>((own - loop_.begin) * kMessages + kind)]);
    return x;
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
  // A layer's messages: of queries, keys, values and the network.
  static constexpr int64_t kMessages = 4;
  static constexpr int64_t kNetworkMessage = 3;
  /// A message of the pass before to a reader of a later one.
  struct Message {
    Tensor query;
    Weight down;  // [rank, 2 * hidden]: of the normed input and the normed message
    Weight forget;
    Weight gain;
  };
  int64_t own_layer(LayerId layer) const {
    const int64_t later = index(layer) - num_layers_;
    return later < 0 ? index(layer) : loop_.begin + later % loop_.size();
  }
  int64_t past_blocks() const { return loop_.size() / spec_.layers - 1; }
  void take_messages(WeightStore& weights);
  /// Turns x, which has been read, into (1 - forget) x + gain message.
  void hear(Encoder& e, const ResidualStream& stream, const Message& m) const;

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
  static BlockMix mix_of(const ModelSpec& spec) {
    if (!spec.block_residual.sums_normed) return {.eps = spec.rms_norm_eps};
    const double width = static_cast<double>(spec.hidden_size);
    return {.scale = static_cast<float>(1.0 / std::sqrt(width)), .eps = 1e-6f, .sums_normed = true};
  }
  /// The first layer's mixer reads the embedding.
  void take_queries(const ModelSpec& spec, WeightStore& weights) {
    const auto query = [&](const std::string& name, int64_t inputs) -> Reader {
      return {weights.vector("attn_res." + name, {inputs, hidden_size_}), {}, {}};
    };
    for (int64_t i = 0; i < num_layers_; ++i) {
      const int64_t inputs = spec.layers[static_cast<size_t>(i)].mixer_inputs;
      readers_.push_back(i == 0 ? Reader{} : query(formatted("attn_queries.{}", i - 1), inputs));
      readers_.push_back(query(formatted("mlp_queries.{}", i), 1));
    }
    last_ = query("output_query", 1);
    if (loop_.size() > 0) take_messages(weights);
  }
  Tensor read_by(Encoder& e, const ResidualStream& stream, const Reader& reader,
                 int64_t input = 0) const {
    if (stream.num_blocks == 0) return stream.now;
    ScratchScope scope(e);
    Tensor query = reader.query.is_null() || reader.query.shape.rank() == 1
                       ? reader.query
                       : reader.query.slice(0, std::min(input, reader.query.dim(0) - 1), 1);
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
  const LoopSpec loop_;
  const int64_t hidden_size_;
  const int64_t num_layers_;  // that have weights
  const float norm_eps_;
  const BlockMix mix_;
  std::vector<Reader> readers_;    // two a layer
  std::vector<Message> messages_;  // of the loop's layers
  Reader last_;
};

void BlockResidual::take_messages(WeightStore& weights) {
  const int64_t h = hidden_size_;
  const Shape two{2 * loop_.size(), h};
  // Queries and the network's in turn; keys' and values'.
  const Tensor outer = weights.vector("middle_cycle_cross_pass_queries", two);
  const Tensor inner = weights.vector("middle_cycle_cross_pass_kv_queries", two);
  if (outer.shape != two || inner.shape != two) return;  // missing: the claims say it
  for (int64_t i = 0; i < loop_.size(); ++i) {
    const Tensor queries[] = {outer.slice(0, 2 * i, 1), inner.slice(0, 2 * i, 1),
                              inner.slice(0, 2 * i + 1, 1), outer.slice(0, 2 * i + 1, 1)};
    const char* const names[] = {"attn", "k", "v", "mlp"};
    for (size_t kind = 0; kind < kMessages; ++kind) {
      const std::string p = formatted("layers.{}.controllers.{}.", loop_.begin + i, names[kind]);
      messages_.push_back({queries[kind], weights.matrix(p + "down_weight", loop_.gate_rank, 2 * h),
                           weights.matrix(p + "forget_weight", h, loop_.gate_rank),
                           weights.matrix(p + "gain_weight", h, loop_.gate_rank)});
    }
  }
}

void BlockResidual::hear(Encoder& e, const ResidualStream& stream, const Message& m) const {
  ScratchScope scope(e);
  const Tensor x = stream.narrow;
  const Tensor message = stream.message;
  if (past_blocks() > 0) {
    e.run(ops::MixBlocks{message, stream.past_blocks, stream.past, m.query, mix_});
  } else {
    e.run(ops::RmsNorm{message, stream.past, {}, mix_.eps});
  }
  const int64_t n = x.dim(0);
  const Tensor both = e.scratch({n, 2 * hidden_size_}, DType::kF32);
  const Tensor inner = e.scratch({n, loop_.gate_rank}, DType::kF32);
  e.run(ops::RmsNorm{both.slice(1, 0, hidden_size_), x, {}, norm_eps_});
  e.run(ops::RmsNorm{both.slice(1, hidden_size_, hidden_size_), message, {}, norm_eps_});
  e.run(ops::Linear{inner, both, m.down});
  const Tensor gate = e.scratch({n, hidden_size_}, DType::kF32);
  /// `of` times the gate.
  const auto gated = [&](const Weight& weight, Tensor of) {
    e.run(ops::Linear{gate, inner, weight});
    e.run(ops::SoftCap{gate, 1.0f});  // tanh
    e.run(ops::MulActivated{gate, gate, of, Activation::kIdentity});
  };
  gated(m.gain, message);
  e.run(ops::Copy{message, gate});
  gated(m.forget, x);
  e.run(ops::Scale{gate, gate, -1.0f});
  e.run(ops::Add{x, x, gate});
  e.run(ops::Add{x, x, message});
}

}  // namespace

std::unique_ptr<Residual> make_block_residual(const ModelSpec& spec, WeightStore& weights) {
  return std::make_unique<BlockResidual>(spec, weights);
}

}  // namespace moeflux::blocks
