// Decides which operations share a launch. A decoded token is many small launches, so an operation
// may wait for the next one:
// - sums for their norm, a norm for its products, a product for its bias, then for its convolution
//   or its SiLU;
// - norms and rotary positions of heads for attention, attention for the gate of its output;
// - the delta rule for its heads' norm and gate;
// - the experts' down products for the sum of their slots; a route and a gated network for the
//   experts.
//
// All of this is data and pure functions: nothing here records a launch. A shared launch gives the
// bits of the operations apart (tests/conformance/fusion_test), and no group of it overwrites what
// another one reads.
#pragma once

#include <array>

#include "backend/gpu/launch/waiting.h"
#include "backend/op_table.h"
#include "backend/ops/add_bias.h"

namespace moeflux::gpu {

/// The fate of an operation, and of the waiting ones.
enum class Action : uint8_t {
  kLaunch,  // the waiting one is launched, then the operation
  kWait,    // the waiting one is launched, the operation waits
  kJoin,    // the operation joins what waits, and both wait
  kFinish,  // the operation joins what waits, and both are launched
};

/// The operations that may share a launch, in the order of the table's columns.
using FusedOps =
    ops::List<ops::Add, ops::CombineExperts, ops::RmsNorm, ops::MulActivated, ops::Rope,
              ops::Linear, FewRowsOp, ops::AddBias, ops::CausalConv, DeltaOp, ops::Route, FfnOp>;
template <typename Op>
constexpr size_t kFusedOp = ops::place_in<Op>(FusedOps{});

/// State x operation: what an operation may do to what waits, if tensors allow it (fits() below).
/// kLaunch: nothing, whatever they are.
constexpr auto kFusionTable = [] {
  constexpr Action kNo = Action::kLaunch;
  constexpr Action kIn = Action::kJoin;
  constexpr Action kEnd = Action::kFinish;
  return std::array<std::array<Action, FusedOps::kCount>, kStates>{{
      // add, combine, norm, gate, rope, product, few rows, bias, conv, delta, route, network
      {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},    // nothing
      {kIn, kNo, kIn, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},    // sums
      {kNo, kNo, kNo, kNo, kNo, kIn, kEnd, kNo, kNo, kNo, kNo, kNo},   // norm
      {kNo, kNo, kNo, kEnd, kNo, kIn, kNo, kIn, kEnd, kNo, kNo, kNo},  // products
      {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kEnd, kNo, kNo, kNo, kNo},   // few rows
      {kNo, kNo, kIn, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},    // delta rule
      {kNo, kNo, kNo, kEnd, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},   // delta rule and norm
      {kNo, kNo, kIn, kEnd, kIn, kNo, kNo, kNo, kNo, kNo, kNo, kNo},   // heads
      {kNo, kNo, kNo, kEnd, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},   // attention
      {kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kIn},    // experts
      {kNo, kIn, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo},    // down products
  }};
}();

/// True when shapes and memory allow what the table has for the state.
bool fits(const Waiting& waiting, const ops::Add& op);
bool fits(const Waiting& waiting, const ops::CombineExperts& op);
bool fits(const Waiting& waiting, const ops::RmsNorm& op);
bool fits(const Waiting& waiting, const ops::MulActivated& op);
bool fits(const Waiting& waiting, const ops::Rope& op);
bool fits(const Waiting& waiting, const ops::Linear& op);
bool fits(const Waiting& waiting, const FewRowsOp& op);
bool fits(const Waiting& waiting, const ops::AddBias& op);
bool fits(const Waiting& waiting, const ops::CausalConv& op);
inline bool fits(const Waiting& waiting, const FfnOp&) { return !waiting.ffn; }
template <typename Op>
bool fits(const Waiting& /*waiting*/, const Op& /*op*/) {
  return false;
}

/// True when an operation waits that joins nothing. A norm waits for products on matrix units,
/// where there are some.
bool may_wait(const ops::Add& op, bool matrix_units);
bool may_wait(const ops::CombineExperts& op, bool matrix_units);
bool may_wait(const ops::RmsNorm& op, bool matrix_units);
bool may_wait(const ops::Rope& op, bool matrix_units);
bool may_wait(const DeltaOp& op, bool matrix_units);
bool may_wait(const ops::Route& op, bool matrix_units);
inline bool may_wait(const ops::Linear&, bool) { return true; }
inline bool may_wait(const FfnOp&, bool) { return true; }
template <typename Op>
bool may_wait(const Op& /*op*/, bool /*matrix_units*/) {
  return false;
}

template <typename Op>
Action action_of(const Waiting& waiting, const Op& op, bool matrix_units) {
  const Action joined = kFusionTable[static_cast<size_t>(waiting.state())][kFusedOp<Op>];
  if (joined != Action::kLaunch && fits(waiting, op)) return joined;
  return may_wait(op, matrix_units) ? Action::kWait : Action::kLaunch;
}

/// Adds an operation that waits or joins to what waits. A gate or few rows that are launched with
/// it do not wait.
void add(Waiting& waiting, const ops::Add& op);
void add(Waiting& waiting, const ops::CombineExperts& op);
void add(Waiting& waiting, const ops::RmsNorm& op);
void add(Waiting& waiting, const ops::Rope& op);
void add(Waiting& waiting, const ops::Linear& op);
void add(Waiting& waiting, const ops::AddBias& op);
void add(Waiting& waiting, const ops::CausalConv& op);
/// A gate that follows a product.
void add_to_product(Waiting& waiting, const ops::MulActivated& op);
void add(Waiting& waiting, const DeltaOp& op);
void add(Waiting& waiting, const ops::Route& op);
void add(Waiting& waiting, const FfnOp& op);

/// True when every group of a launch that reads x can make it from what waits: all groups read what
/// the norm is of while the first one writes it down.
bool can_norm(const Chain& chain, const Tensor& x);
/// True when they can also make the sum; otherwise it has a launch before them, as a sum of many
/// parts would be too much for every group.
bool can_sum(const Chain& chain);
/// True when what waits of heads goes on to attention over q, k and v in one launch; q and v may be
/// null.
bool can_write_heads(const AllHeads& heads, const Tensor& q, const Tensor& k, const Tensor& v);
/// True when gated_delta_t1_d128 computes it.
bool has_few_tokens(const DeltaOp& op);

}  // namespace moeflux::gpu
