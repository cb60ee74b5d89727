// Every edge of the fusion table, without a device: what joins where memory allows it, and that it
// does not where it would overwrite what others read. That shared launches have the bits of the
// operations apart is for tests/conformance/fusion_test.cc.
#include "backend/gpu/launch/fusion.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>

#include "backend/host_buffer.h"

namespace moeflux::gpu {
namespace {

// Tensors of their own memory, in one buffer.
class FusionTable : public ::testing::Test {
 protected:
  Tensor make(const Shape& shape, DType dtype = DType::kF32) {
    const Tensor tensor = Tensor::view(**buffer_, used_, shape, dtype);
    used_ += (static_cast<size_t>(shape.num_elements()) * sizeof(float) + 255) / 256 * 256;
    MF_CHECK(used_ <= (*buffer_)->size_bytes());
    return tensor;
  }
  Tensor row() { return make({1, 64}); }
  Tensor heads() { return make({1, 4, 16}); }
  Weight weight() {
    Weight w;
    w.rows = w.cols = 64;
    w.format = QuantFormat::affine(4, 64, DType::kBf16);
    return w;
  }
  DeltaOp delta() {
    const ops::GatedDelta op{make({1, 2, 128}), make({1, 512}), row(), row(), row(), row(), {},
                             {1, 2, 128, 128}};
    return {op, {.state = make({2, 128, 128}), .are_wide = true}};
  }

  static size_t edges() {
    size_t count = 0;
    for (const auto& of_state : kFusionTable) {
      for (const Action action : of_state) count += action != Action::kLaunch ? 1 : 0;
    }
    return count;
  }

  // The waiting operations after an operation.
  template <class Op>
  Waiting with(Waiting waiting, const Op& op) {
    add(waiting, op);
    return waiting;
  }
  Waiting sums() { return with({}, ops::Add{row(), row(), row()}); }
  Waiting norm() { return with({}, ops::RmsNorm{row(), row(), make({64}), 1e-6f}); }
  Waiting products() { return with({}, ops::Linear{row(), row(), weight()}); }

  /// An operation that joins, and the same where it may not.
  template <class Op>
  void expect_edge(State state, const Waiting& waiting, const Op& joins, const Op& apart) {
    const auto at = std::pair(static_cast<size_t>(state), kFusedOp<Op>);
    ASSERT_EQ(waiting.state(), state);
    const Action action = kFusionTable[at.first][at.second];
    EXPECT_TRUE(action == Action::kJoin || action == Action::kFinish);
    EXPECT_EQ(action_of(waiting, joins, true), action) << at.first << ", " << at.second;
    const Action other = action_of(waiting, apart, true);
    EXPECT_TRUE(other == Action::kWait || other == Action::kLaunch)
        << at.first << ", " << at.second;
    seen_.insert(at);
  }

  /// The edges of sums, a norm and products.
  void expect_edges_of_products(const Tensor& w) {
    Waiting s = sums();
    const Tensor sum = s.chain.value;
    expect_edge(State::kSums, s, ops::Add{row(), sum, row()}, ops::Add{row(), row(), row()});
    expect_edge(State::kSums, s, ops::RmsNorm{row(), sum, w, 0.0f},
                ops::RmsNorm{row(), sum, Tensor{}, 0.0f});

    s = norm();
    const Tensor normed = s.chain.norm.out;
    expect_edge(State::kNorm, s, ops::Linear{row(), normed, weight()},
                ops::Linear{s.chain.base, normed, weight()});
    expect_edge(State::kNorm, s, FewRowsOp{{row(), normed, weight()}},
                FewRowsOp{{s.chain.base, normed, weight()}});

    s = products();
    const ops::Linear first = s.products[0];
    expect_edge(State::kProducts, s, ops::Linear{row(), first.x, weight()},
                ops::Linear{first.out, first.x, weight()});
    const ops::AddBias bias{first.out, make({64})};
    expect_edge(State::kProducts, s, bias, ops::AddBias{first.x, bias.bias});
    EXPECT_EQ(action_of(with(s, bias), bias, true), Action::kLaunch) << "it has one";
    const StateRows state{1, make({3, 64})};
    const ops::CausalConv conv{row(), first.out, make({64, 4}), {}, {&state, 1}};
    ops::CausalConv over = conv;
    over.out = first.x;
    expect_edge(State::kProducts, s, conv, over);
    ops::CausalConv plain = conv;
    plain.options.activation = Activation::kIdentity;
    expect_edge(State::kProducts, s, conv, plain);

    expect_edge(State::kProducts, s,
                ops::MulActivated{row(), first.out, first.out, Activation::kSigmoid},
                ops::MulActivated{row(), first.out, row(), Activation::kSigmoid});
  }

  Result<std::unique_ptr<Buffer>> buffer_ = allocate_host_buffer(4 << 20);
  size_t used_ = 0;
  std::set<std::pair<size_t, size_t>> seen_;
};

TEST_F(FusionTable, EveryEdgeJoinsWhereMemoryAllowsIt) {
  const Tensor w = make({64});
  expect_edges_of_products(w);

  Waiting s;
  s.few_rows = FewRows{{}, {}, row()};
  expect_edge(State::kFewRows, s, ops::AddBias{s.few_rows->out, w}, ops::AddBias{row(), w});

  s = with({}, delta());
  const Tensor out = s.delta.op.out;
  const ops::RmsNorm heads_norm{out, out, make({128}), 0.0f};
  expect_edge(State::kDelta, s, heads_norm, ops::RmsNorm{make({1, 2, 128}), out, w, 0.0f});
  s = with(s, heads_norm);
  const ops::MulActivated gate{out, out, make({1, 2, 128}), Activation::kSilu};
  const ops::MulActivated other{out, out, gate.gate, Activation::kGeluTanh};
  expect_edge(State::kDeltaNorm, s, gate, other);
  expect_edge(State::kDeltaNorm, s, ops::MulActivated{out, out, gate.gate, Activation::kSigmoid},
              other);

  const Tensor q = heads();
  const ops::RmsNorm norm_q{q, q, make({16}), 0.0f};
  s = with({}, norm_q);
  const Tensor k = heads();
  expect_edge(State::kHeads, s, ops::RmsNorm{k, k, norm_q.weight, 0.0f},
              ops::RmsNorm{k, q, norm_q.weight, 0.0f});
  const ops::Rope turn{q, make({1}, DType::kI32), make({8}), {.rotary_dim = 16}};
  expect_edge(State::kHeads, s, turn,
              ops::Rope{q.slice(1, 0, 2), turn.positions, turn.inverse_frequencies, turn.options});
  expect_edge(State::kHeads, s, ops::MulActivated{q, q, heads(), Activation::kSigmoid},
              ops::MulActivated{q, q, q, Activation::kSigmoid});

  s = {};
  s.attention = AttentionOp{{}, {}, q};
  expect_edge(State::kAttention, s, ops::MulActivated{q, q, heads(), Activation::kSigmoid},
              ops::MulActivated{q, q, heads(), Activation::kSilu});

  s = {};
  s.route = ops::Route{};
  const FfnOp ffn{{row(), row(), {}, {}, {}}, row()};
  EXPECT_EQ(action_of(s, ffn, true), Action::kJoin);
  EXPECT_EQ(action_of(with(s, ffn), ffn, true), Action::kWait);  // there is one already
  seen_.insert({static_cast<size_t>(State::kExperts), kFusedOp<FfnOp>});

  const Tensor slots = make({1, 2, 64});
  const Tensor weights = make({1, 2});
  s = {};
  s.down = DownOp{{}, slots, weights, {}, 1};
  expect_edge(State::kDown, s, ops::CombineExperts{row(), slots, {{}, weights}},
              ops::CombineExperts{slots, slots, {{}, weights}});

  EXPECT_EQ(seen_.size(), edges()) << "an edge without an example";
}

}  // namespace
}  // namespace moeflux::gpu
