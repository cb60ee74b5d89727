// Operations as plain data: what planners make launches of, and what fusion.h decides about.
#pragma once

#include <cstdint>

#include "backend/gpu/plan.h"
#include "backend/ops.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

struct AddOp {
  Tensor out;
  Tensor a;
  Tensor b;
};

/// The sum of a token's slots, in router order.
struct CombineOp {
  Tensor out;
  Tensor slots;
  Tensor weights;
};

struct NormOp {
  Tensor out;  // null: no norm
  Tensor x;
  Tensor weight;  // null: no weight
  float eps = 0.0f;
};

struct GateOp {
  Tensor out;
  Tensor x;
  Tensor gate;
  Activation activation{};
};

struct RopeOp {
  Tensor x;
  Tensor positions;
  Tensor frequencies;
  RopeOptions options;
};

/// A product on matrix units.
struct ProductOp {
  Tensor out;
  Tensor x;
  Weight weight;
};

/// Few rows of plain numbers times one token.
struct FewRowsOp {
  Tensor out;
  Tensor x;
};

/// Where the states of several sequences begin, as a table in device memory. They have a token
/// each.
struct StateTable {
  Binding addresses;
  uint32_t count = 0;     // 0: there is one sequence, whose state the operation has itself
  bool are_wide = false;  // as is_wide() says of a tensor

  bool is_null() const { return count == 0; }
  uint32_t sequences() const { return is_null() ? 1 : count; }
  /// Tokens of each sequence of an operation that has so many rows.
  uint32_t tokens_each(uint32_t rows) const { return is_null() ? rows : 1; }
};

struct ConvOp {
  Tensor out;  // null: none
  Tensor x;
  Tensor weight;
  Tensor state;
  ConvOptions options;
  StateTable states = {};
};

struct DeltaOp {
  Tensor out;  // null: none
  Tensor qkv;
  Tensor a;
  Tensor b;
  Tensor a_log;
  Tensor dt_bias;
  Tensor state;
  GatedDeltaOptions options;
  StateTable states = {};
};

struct ScanOp {
  Tensor out;
  Tensor xbc;
  Tensor dt;
  ScanWeights weights;
  Tensor state;
  ScanOptions options;
  StateTable states = {};
};

/// The last launch of attention. With no gate, which is its last binding.
struct AttentionOp {
  Plan plan;
  AttentionParams params{};
  Tensor out;
};

struct RouteOp {
  RouteParams params{};
  Routes routes;
  Tensor logits;
  Tensor correction_bias;
  Tensor expert_scale;
  Tensor table;  // null: by score
  Tensor token_ids;
};

/// A gated network for every token.
struct FfnOp {
  Tensor out;
  Tensor x;
  Tensor out_gate;
  Tensor intermediate;
  GluWeights weights;
  GluOptions glu;
};

/// The down products of few slots.
struct DownOp {
  Plan plan;
  Tensor slots;
  Tensor slot_weights;
  Tensor shared_out;  // null: no shared expert
  uint32_t tokens = 0;
};

}  // namespace moeflux::gpu
