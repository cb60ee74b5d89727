// Ops that wait for the next one, because both can share a launch. Plain data: gpu_encoder.h says
// who joins whom.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/ops.h"
#include "base/check.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace moeflux::gpu {

/// Up to N values in place: what waits comes and goes with every launch, and a warm step allocates
/// nothing. Only values that are there are copied.
template <typename T, size_t N>
class Few {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  Few() = default;
  Few(const Few& other) { *this = other; }
  Few& operator=(const Few& other) {
    if (this == &other) return *this;
    size_ = other.size_;
    std::memcpy(bytes_.data(), other.bytes_.data(), size_ * sizeof(T));
    return *this;
  }

  void push_back(const T& value) {
    MF_CHECK(size_ < N);
    std::memcpy(bytes_.data() + size_++ * sizeof(T), &value, sizeof(T));
  }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return begin()[i]; }
  const T& operator[](size_t i) const { return begin()[i]; }
  const T& front() const { return *begin(); }
  T* begin() { return reinterpret_cast<T*>(bytes_.data()); }
  T* end() { return begin() + size_; }
  const T* begin() const { return reinterpret_cast<const T*>(bytes_.data()); }
  const T* end() const { return begin() + size_; }

 private:
  alignas(T) std::array<std::byte, N * sizeof(T)> bytes_;  // no values until they are put there
  size_t size_ = 0;
};

struct WaitingNorm {
  Tensor out;  // null: no norm
  Tensor x;
  Tensor weight;  // null: no weight
  float eps = 0.0f;
};

/// Sums that may end in a norm: of slots of experts or of a base, then of addends.
struct WaitingChain {
  Tensor slots;             // null: begins with the base
  bool after_down = false;  // the products that give the slots wait for it
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

/// Of queries, keys and values.
using AllHeads = Few<WaitingHeads, 3>;

/// Products of the same x.
struct WaitingProduct {
  Tensor out;
  Tensor x;
  Weight weight;
};

using Products = Few<WaitingProduct, kMmaMatricesMax>;

/// The convolution of what a product gives.
struct WaitingConv {
  Tensor out;  // null: none
  Tensor weight;
  Tensor state;
  uint32_t product = 0;
};

/// The delta rule of one token, whose heads may go on through a norm in place.
struct WaitingDelta {
  Tensor out;  // null: none
  Tensor qkv;
  Tensor a;
  Tensor b;
  Tensor a_log;
  Tensor dt_bias;
  Tensor state;
  GatedDeltaOptions options;
  WaitingNorm norm;
};

/// One of chain, delta rule, heads and products; or products of what the chain gives.
struct Waiting {
  WaitingChain chain;
  WaitingDelta delta;
  AllHeads heads;
  Products products;
  WaitingConv conv;

  bool has_chain() const { return !chain.value.is_null(); }
  bool has_delta() const { return !delta.out.is_null(); }
  bool is_empty() const {
    return !has_chain() && !has_delta() && heads.empty() && products.empty();
  }
  /// Only what is there costs anything: this happens with every launch.
  void clear() {
    if (has_chain()) chain = {};
    if (has_delta()) delta = {};
    if (!conv.out.is_null()) conv = {};
    heads.clear();
    products.clear();
  }
};

}  // namespace moeflux::gpu
