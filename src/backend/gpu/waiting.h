// Ops that wait for the next one, because both can share a launch. Plain data: gpu_encoder.h says
// who joins whom.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "backend/ops.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

struct WaitingNorm {
  Tensor out;  // null: no norm
  Tensor x;
  Tensor weight;  // null: no weight
  float eps = 0.0f;
};

/// Sums that may end in a norm: of slots of experts or of a base, then of addends.
struct WaitingChain {
  Tensor slots;  // null: begins with the base
  Tensor slot_weights;
  Tensor base;
  std::array<Tensor, 2> addends;
  std::array<Tensor, 3> sums;  // of the slots, with one addend, with two
  uint32_t adds = 0;
  Tensor value;      // the last sum, or the base if there is none; null: nothing waits
  WaitingNorm norm;  // of the value
};

/// Heads with a norm, which a gate may follow, and rotary positions, which attention may.
struct WaitingHeads {
  Tensor x;  // the norm's output
  WaitingNorm norm;
  bool has_rope = false;
  Tensor positions;
  Tensor frequencies;
  RopeOptions rope;
};

/// Products of the same x.
struct WaitingProduct {
  Tensor out;
  Tensor x;
  Weight weight;
};

/// The convolution of what a product gives.
struct WaitingConv {
  Tensor out;  // null: none
  Tensor weight;
  Tensor state;
  uint32_t product = 0;
};

/// One of chain, heads and products; or products of what the chain gives.
struct Waiting {
  WaitingChain chain;
  std::vector<WaitingHeads> heads;
  std::vector<WaitingProduct> products;
  WaitingConv conv;

  bool has_chain() const { return !chain.value.is_null(); }
  bool is_empty() const { return !has_chain() && heads.empty() && products.empty(); }
};

}  // namespace moeflux::gpu
