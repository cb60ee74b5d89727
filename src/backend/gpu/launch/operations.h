// Parts of launches that operations of backend/ops do not have.
#pragma once

#include <cstdint>

#include "backend/gpu/kernels/matmul/params.h"
#include "backend/gpu/launch/plan.h"
#include "backend/gpu/launch/recorder.h"
#include "backend/gpu/launch/segments.h"
#include "backend/ops/gated_delta.h"
#include "backend/ops/gated_ffn.h"
#include "backend/ops/linear.h"
#include "backend/ops/rms_norm.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

/// Few rows of plain numbers times one token.
struct FewRowsOp {
  ops::Linear op;
};

/// Their launch. With no bias, which is its last binding.
struct FewRows {
  Plan plan;
  FewRowsParams params{};
  Tensor out;
};

/// The states of an operation's sequences: of one, or of several, where they begin as a table in
/// device memory.
struct StateTable {
  Tensor state;  // of one sequence
  Binding addresses;
  SegmentTables segments;  // of several that have more than a token
  uint32_t count = 0;      // 0: there is one sequence
  uint32_t tokens = 1;     // of each of several, behind one another; 0: segments say where
  bool are_wide = false;   // as is_wide() says of a tensor

  bool is_null() const { return count == 0; }
  uint32_t sequences() const { return is_null() ? 1 : count; }
  /// Tokens of each sequence of an operation that has so many rows.
  uint32_t tokens_each(uint32_t rows) const { return is_null() ? rows : tokens; }
  /// The writes of a launch with these states: all of them, or nothing but the tensors it binds.
  Writes writes() const { return is_null() ? Writes::kBound : Writes::kByAddress; }
};

/// The delta rule, whose heads may go on through a norm in place. The operation's own list of
/// sequences may be gone by the time that it is launched.
struct DeltaOp {
  ops::GatedDelta op;
  StateTable states;
  ops::RmsNorm norm = {};
};

/// The last launch of attention. With no gate, which is its last binding.
struct AttentionOp {
  Plan plan;
  AttentionParams params{};
  Tensor out;
};

/// A gated network for every token.
struct FfnOp {
  ops::GatedFfn op;
  Tensor intermediate;
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
