// The Encoder of the CPU: executes each op in the call, spread over its thread pool.
//
// Work is cut so that every output element is computed by one task with a fixed order of
// operations: bits depend neither on the cut nor on who runs which task. After the first steps no
// op allocates: workspaces only ever grow.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/int8_products.h"
#include "backend/cpu/kernels/int8_table.h"
#include "backend/cpu/kernels/kernel_table.h"
#include "backend/encoder.h"
#include "backend/host_buffer.h"
#include "base/thread_pool.h"

namespace moeflux::cpu {

class CpuEncoder : public Encoder {
 public:
  /// `int8` may be null: every product is f32.
  CpuEncoder(const KernelTable& kernels, const Int8Kernels* int8, int threads, ScratchArena arena)
      : kernels_(kernels), int8_(int8), arena_(std::move(arena)), pool_(threads) {}

  Tensor scratch(const Shape& shape, DType dtype) override { return arena_.take(shape, dtype); }
  size_t scratch_mark() const override { return arena_.mark(); }
  void scratch_release(size_t mark) override { arena_.release(mark); }
  void keep_alive(std::unique_ptr<Retained>) override {}  // everything recorded has run already

  void write(Tensor to, std::span<const std::byte> from) override;
  Status read(std::span<std::byte> to, Tensor from) override;

  void copy(Tensor out, Tensor x) override;
  void add(Tensor out, Tensor a, Tensor b) override;
  void mul_activated(Tensor out, Tensor x, Tensor gate, Activation activation) override;
  void rms_norm(Tensor out, Tensor x, Tensor weight, float eps) override;

  void add_bias(Tensor x, Tensor bias) override;
  void scale(Tensor out, Tensor x, float factor) override;
  void soft_cap(Tensor x, float cap) override;

  void embed(Tensor out, const Weight& table, Tensor token_ids) override;
  void linear(Tensor out, Tensor x, const Weight& weight) override;
  void head_linear(Tensor out, Tensor x, const Weight& weight, const HeadRows& rows) override;
  void head_linear_transposed(Tensor out, Tensor x, const Weight& weight,
                              const HeadRows& rows) override;

  void rope(Tensor x, Tensor positions, Tensor inverse_frequencies,
            const RopeOptions& options) override;
  void attention(Tensor out, Tensor q, Tensor k, Tensor v, const KvView& kv,
                 const AttentionOptions& options) override;
  void causal_conv(Tensor out, Tensor x, Tensor weight, Tensor state) override;
  void gated_delta(Tensor out, Tensor qkv, Tensor a, Tensor b, Tensor a_log, Tensor dt_bias,
                   Tensor state, const GatedDeltaOptions& options) override;

  void route(const Routes& out, Tensor logits, const RouterOptions& options) override;
  void expert_ffn(Tensor slots, Tensor intermediate, Tensor x, const Routes& routes,
                  std::span<const ExpertWeights> ready, const GluOptions& glu) override;
  void combine_experts(Tensor out, Tensor slots, const Routes& routes) override;
  void glu(Tensor out, Tensor gate, Tensor up, const GluOptions& options) override;

  EventId submit() override { return EventId{++events_}; }
  Status wait(EventId) override { return status_; }

 private:
  /// The (token, rank) slots of one wave of experts, sorted by expert.
  struct ExpertSlots {
    std::vector<int32_t> ready_of_expert;  // by expert id: index into `ready`, or -1
    std::vector<int64_t> begin;            // by ready index, one more than there are
    std::vector<int64_t> slots;
  };

  bool supports(const char* op, const Weight& weight);
  /// Runs fn(task) for every task: on the pool when `work` (multiply-adds or so) is worth waking
  /// it.
  template <typename Fn>
  void for_tasks(int64_t count, int64_t work, Fn&& fn) {
    constexpr int64_t kWorthThreads = 32 * 1024;  // about 3 us of one core
    if (work >= kWorthThreads && count > 1) {
      pool_.parallel_for(count, fn);
    } else {
      for (int64_t task = 0; task < count; ++task) fn(task);
    }
  }
  /// Rows of a weight matrix one task computes, when `matrices` like it are computed at once.
  int64_t rows_per_task(int64_t rows, int64_t matrices) const;
  /// Fills `permuted` with rows x[i] in the order of 4-bit codes and points into it.
  void permute_rows(std::span<const float* const> x, int64_t cols, std::vector<float>& permuted,
                    std::vector<const float*>& pointers);
  int64_t sort_slots(const Routes& routes, int64_t slot_count,
                     std::span<const ExpertWeights> ready);
  /// Points inputs_ and outputs_ [heads, n] at rows of [n, heads, cols] tensors.
  void collect_heads(const RowsView& from, const RowsView& to, int64_t n, int64_t heads);
  void expert_gate_up(const RowsView& hidden, const RowsView& from, int64_t top_k,
                      std::span<const ExpertWeights> ready, const GluOptions& glu);
  void expert_down(const RowsView& to, const RowsView& hidden,
                   std::span<const ExpertWeights> ready);

  /// Whether products with the weight take int8 activations. Depends on the weight alone, so that a
  /// token's bits do not depend on what else is computed.
  bool wants_int8(const Weight& weight) const {
    return int8_ != nullptr && weight.format.kind == QuantKind::kAffine &&
           (weight.format.bits == 4 || weight.format.bits == 8);
  }
  bool wants_int8(const ExpertWeights& expert) const {
    return wants_int8(expert.gate) && wants_int8(expert.up) &&
           expert.gate.format.group_size == expert.up.format.group_size;
  }
  /// Fills int8_rows(group_size) with an entry for each row of `x`; equal pointers are quantised
  /// once.
  void quantize_rows(std::span<const float* const> x, int64_t cols, int group_size);
  void quantize_for(std::span<const bool> by_group_size, std::span<const float* const> x,
                    int64_t cols);
  static constexpr int kInt8GroupSizes = 3;
  static int int8_index(int group_size) { return group_size == 32 ? 0 : group_size == 64 ? 1 : 2; }
  Int8Rows& int8_rows(int group_size) { return int8_rows_[int8_index(group_size)]; }

  const KernelTable& kernels_;
  const Int8Kernels* int8_;
  ScratchArena arena_;
  ThreadPool pool_;
  Status status_;  // the first error; later ops do nothing
  uint64_t events_ = 0;

  // Workspaces, grow-only.
  ExpertSlots expert_slots_;
  std::vector<float> floats_;
  Int8Rows int8_rows_[kInt8GroupSizes];
  std::vector<float> permuted_;
  std::vector<const float*> inputs_;
  std::vector<const float*> permuted_inputs_;
  std::vector<float*> outputs_;
  std::vector<const float*> k_pages_;
  std::vector<const float*> v_pages_;
};

/// Grows a workspace to at least `size` elements and returns it.
template <typename T>
T* workspace(std::vector<T>& storage, int64_t size) {
  if (storage.size() < static_cast<size_t>(size)) storage.resize(static_cast<size_t>(size));
  return storage.data();
}

}  // namespace moeflux::cpu
