// Operations that wait for the next one, because both may share a launch. Plain data: fusion.h says
// who joins whom.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backend/gpu/launch/inline_vector.h"
#include "backend/gpu/launch/operations.h"
#include "backend/ops/causal_conv.h"
#include "backend/ops/rope.h"
#include "backend/ops/route.h"

namespace moeflux::gpu {

/// Sums that may end in a norm: of slots of experts or of a base, then of addends.
struct Chain {
  Tensor slots;             // null: begins with the base
  bool after_down = false;  // the products that give the slots wait for it
  Tensor slot_weights;
  Tensor base;
  std::array<Tensor, 2> addends;
  std::array<Tensor, 3> sums;  // of the slots, with one addend, with two
  uint32_t adds = 0;
  Tensor value;       // the last sum, or the base if there is none; null: nothing waits
  ops::RmsNorm norm;  // of the value; null: none
};

/// Heads with a norm, which a gate may follow, and rotary positions, which attention may.
struct Heads {
  Tensor x;  // the norm's output
  ops::RmsNorm norm;
  ops::Rope rope;  // of x, or of some of its columns

  bool has_norm() const { return !norm.out.is_null(); }
  bool has_rope() const { return !rope.x.is_null(); }
};

/// The heads of queries, keys and values.
using AllHeads = InlineVector<Heads, 3>;

/// Products of the same x.
using Products = InlineVector<ops::Linear, kMmaMatricesMax>;

/// A bias of what one of them gives.
struct ProductBias {
  Tensor bias;
  uint32_t product = 0;
};
/// All of them are in one buffer.
using ProductBiases = InlineVector<ProductBias, kMmaMatricesMax>;

/// The convolution of what one of the products gives, or x * sigmoid(x) of it: then there is no
/// weight.
struct ProductConv {
  ops::CausalConv op;
  Tensor state;  // of its only sequence
  uint32_t product = 0;
};

/// The states that fusion knows. Only one of them holds at a time.
enum class State : uint8_t {
  kNothing,
  kSums,       // a chain without a norm
  kNorm,       // a chain that ends in one
  kProducts,   // products, which may make the norm before them
  kFewRows,    // few rows of plain numbers times one token
  kDelta,      // the delta rule of one token,
  kDeltaNorm,  // and its heads' norm
  kHeads,      // norms and turns of heads
  kAttention,  // its last launch
  kExperts,    // routes, a gated network, or both
  kDown,       // down products of few slots
};
constexpr uint32_t kStates = 11;

struct Waiting {
  Chain chain;
  DeltaOp delta;
  AllHeads heads;
  Products products;
  ProductBiases biases;
  std::optional<FewRows> few_rows;
  ProductConv conv;
  std::optional<AttentionOp> attention;
  std::optional<ops::Route> route;
  std::optional<FfnOp> ffn;
  std::optional<DownOp> down;  // also below a chain that is after it

  State state() const {
    if (route || ffn) return State::kExperts;
    if (attention) return State::kAttention;
    if (!products.empty()) return State::kProducts;
    if (few_rows) return State::kFewRows;
    if (!chain.value.is_null()) return chain.norm.out.is_null() ? State::kSums : State::kNorm;
    if (!delta.op.out.is_null()) {
      return delta.norm.out.is_null() ? State::kDelta : State::kDeltaNorm;
    }
    if (!heads.empty()) return State::kHeads;
    return down ? State::kDown : State::kNothing;
  }
  /// Only what is there costs anything: this happens with every launch.
  void clear() {
    if (!chain.value.is_null()) chain = {};
    if (!delta.op.out.is_null()) delta = {};
    if (!conv.op.out.is_null()) conv = {};
    heads.clear();
    products.clear();
    biases.clear();
    few_rows.reset();
    attention.reset();
    route.reset();
    ffn.reset();
    down.reset();
  }
};

}  // namespace moeflux::gpu
